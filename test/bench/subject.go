package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/superfly/ltx"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/internal/ledger"
	"celldexport/internal/ltxfile"
)

// libraryDecode is the floor under everything that starts with a file: all
// pages of it through the library's decoder.
func libraryDecode(file, page []byte) error {
	dec := ltx.NewDecoder(bytes.NewReader(file))
	dec.SetRetainPageIndex(false)
	if err := dec.DecodeHeader(); err != nil {
		return err
	}
	for {
		var h ltx.PageHeader
		err := dec.DecodePage(&h, page)
		if errors.Is(err, io.EOF) {
			return dec.Close()
		}
		if err != nil {
			return err
		}
	}
}

// ownDecode is the same through our decoder.
func ownDecode(file []byte) error {
	_, err := ltxfile.Decode(bytes.NewReader(file), int64(len(file)), func(uint32, []byte) error { return nil })
	return err
}

// subject is a base with one unit on it, ready to be diffed again and again.
type subject struct {
	base *diffpage.Base
	sh   *shadow.Shadow
	unit *unit
	file []byte
	plan *rowset.Plan
}

// newSubject takes a database file as the shadow.
func newSubject(path string, u *unit) (*subject, error) {
	sh, err := shadow.Open(path)
	if err != nil {
		return nil, err
	}
	return subjectOn(sh, u)
}

func subjectOn(sh *shadow.Shadow, u *unit) (*subject, error) {
	base, err := diffpage.NewBase(sh)
	if err != nil {
		return nil, errors.Join(err, sh.Close())
	}
	s := &subject{base: base, sh: sh, unit: u}
	if s.file, err = u.ltx(ltxfile.Frame); err != nil {
		return nil, errors.Join(err, sh.Close())
	}
	if s.plan, err = goingOn(base); err != nil {
		return nil, errors.Join(err, sh.Close())
	}
	return s, nil
}

func (s *subject) close() error { return s.sh.Close() }

// goingOn is the plan of a unit that changes no table's definition.
func goingOn(base *diffpage.Base) (*rowset.Plan, error) {
	p, err := rowset.NewPlan(base.Schema(), base.Schema(), nil, ledger.Mark{Epoch: 1, TXID: 1}, ledger.Mark{Epoch: 1},
		rowset.Options{Scope: "Cart:1", MaxRecordBytes: 1 << 20, MemoryBytes: 4 << 20, Scratch: new(rowset.Scratch)})
	if err != nil {
		return nil, err
	}
	return p.Next(), nil
}

// rows is what the diff shows of the table of every stage.
func (s *subject) rows(images *shadow.Images) (int, error) {
	c, err := s.base.Diff(images, s.unit.commit)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	n := 0
	err = c.Rows("t", func(diffpage.Op, diffpage.Row, diffpage.Row) error {
		n++
		return nil
	})
	return n, err
}

// diff is a contender: the diff alone, from decoded pages to pairs of rows.
func (s *subject) diff(want int) (func() error, error) {
	images, err := s.unit.images()
	if err != nil {
		return nil, err
	}
	return func() error {
		n, err := s.rows(images)
		if err == nil && n != want {
			err = fmt.Errorf("%d rows, not %d", n, want)
		}
		return err
	}, nil
}

// whole is a contender: from the bytes of a file to the bytes of its records.
func (s *subject) whole(want int64) func() error {
	env := someEnvelope()
	var pool shadow.Pool
	discard := func(*envelope.Encoded) error { return nil }
	return func() error {
		images := pool.NewImages(s.unit.pageSize, 1<<30, "")
		if _, err := ltxfile.DecodeInto(bytes.NewReader(s.file), int64(len(s.file)), images.Slot, images.Add); err != nil {
			return err
		}
		c, err := s.base.Diff(images, s.unit.commit)
		if err != nil {
			return errors.Join(err, images.Close())
		}
		defer c.Close()
		stats, err := s.plan.Encode(env, c, nil, discard)
		if n := stats.Inserts + stats.Updates + stats.Deletes; err == nil && n != want {
			err = fmt.Errorf("%d rows, not %d", n, want)
		}
		return err
	}
}

func someEnvelope() envelope.Envelope {
	return envelope.Envelope{
		Stream:   envelope.Stream{Script: "shop", Class: "Cart", Cell: "Cart:5f2a", Incarnation: 1},
		Position: envelope.Position{Epoch: 1, TXID: 2, Commit: 2}, CommittedAt: 1_800_000_000_000, Node: "node-a",
		Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}
}
