package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/envelope"
	"celldexport/sinks/delivery"
)

// spoolBytes is what one operation of the spool stage writes, spoolGroup how
// many units share a sync.
const (
	spoolBytes = 64 << 20
	spoolGroup = 64
)

// spoolStage writes units of a hundred rows, their pages and their records,
// and syncs them in groups; the floor appends the same bytes to a file and
// syncs as often.
func spoolStage(ctx context.Context, b *bench) ([]Line, error) {
	var lines []Line
	err := eachChange(ctx, b, func(c change, s *subject) error {
		if c.rows != 100 {
			return nil
		}
		p, err := parcelOf(s)
		if err != nil {
			return err
		}
		n := spoolBytes / p.bytes
		e := b.effort
		e.reps = max(3, e.reps/3)
		r, err := e.interleave(wallClock(),
			func() error { return p.plain(filepath.Join(b.dir, "plain"), n) },
			func() error { return p.spool(ctx, filepath.Join(b.dir, "spool"), n) })
		if err != nil {
			return err
		}
		cpu, err := effort{slice: 1, reps: e.reps}.interleave(cpuClock, func() error { return p.spool(ctx, filepath.Join(b.dir, "spool"), n) })
		if err != nil {
			return err
		}
		const floor = "plain write + sync"
		on := fmt.Sprintf("%d units of %s (%v, records %s), a sync each %d", n, size(int64(p.bytes)), s.unit, size(int64(len(p.record.Body))), spoolGroup)
		l := Line{Stage: "spool", What: "ours, " + c.name, On: on,
			Note: fmt.Sprintf("wall time; of the processor alone %s MB/s; takes %.0f %% of that on disk",
				number(float64(n*p.bytes)/cpu[0].median()*1e3), 100*float64(p.stored)/float64(n*p.bytes))}.took(r[1], n, "unit").mbps(n*p.bytes).versus(floor, r[1].against(r[0]))
		lines = append(lines,
			Line{Stage: "spool", What: floor, On: on, Note: "wall time"}.took(r[0], n, "unit").mbps(n*p.bytes),
			l.atLeast(l.Value, 200, "200 MB/s"))
		return nil
	})
	return lines, err
}

// parcel is a unit as the spool takes it.
type parcel struct {
	head   delivery.Unit
	unit   *unit
	record envelope.Encoded
	bytes  int
	// stored is what the last run took on disk.
	stored int64
}

func parcelOf(s *subject) (*parcel, error) {
	images, err := s.unit.images()
	if err != nil {
		return nil, err
	}
	c, err := s.base.Diff(images, s.unit.commit)
	if err != nil {
		return nil, errors.Join(err, images.Close())
	}
	defer c.Close()
	env := someEnvelope()
	p := &parcel{unit: s.unit, bytes: s.unit.bytes(), head: delivery.Unit{
		Form: delivery.FormUnit, Stream: env.Stream, CommittedAt: env.CommittedAt, Node: env.Node, Scope: env.Stream.Cell,
		Position: env.Position, MinTXID: 2, MaxTXID: 2, PageSize: s.unit.pageSize, Commit: s.unit.commit,
	}}
	_, err = s.plan.Encode(env, c, nil, func(e *envelope.Encoded) error {
		p.record = *e
		p.record.Body = append([]byte(nil), e.Body...)
		return nil
	})
	p.bytes += len(p.record.Body)
	return p, err
}

// spool writes the unit n times into a new spool.
func (p *parcel) spool(ctx context.Context, dir string, n int) error {
	s, err := delivery.OpenSpool(dir, delivery.Options{})
	if err != nil {
		return err
	}
	for i := range n {
		head, record := p.head, p.record
		head.Position.TXID, head.Position.Commit = uint64(i+2), uint64(i+2)
		head.MinTXID, head.MaxTXID, record.Position = uint64(i+2), uint64(i+2), head.Position
		if err = p.entry(s, head, &record); err != nil {
			break
		}
		if i%spoolGroup == spoolGroup-1 {
			if err = s.Sync(ctx); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = s.Sync(ctx)
	}
	p.stored, _ = s.Usage()
	return errors.Join(err, s.Close(), os.RemoveAll(dir))
}

func (p *parcel) entry(s *delivery.Spool, head delivery.Unit, record *envelope.Encoded) error {
	w, err := s.Begin(head)
	if err != nil {
		return err
	}
	err = w.Record(record)
	for i := 0; err == nil && i < len(p.unit.pgnos); i++ {
		err = w.Page(p.unit.pgnos[i], p.unit.pages[i])
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	_, err = w.Commit()
	return err
}

// plain is the floor.
func (p *parcel) plain(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	var buf []byte
	for i := range n {
		buf = append(buf[:0], p.record.Body...)
		for _, page := range p.unit.pages {
			buf = append(buf, page...)
		}
		if _, err = f.Write(buf); err != nil {
			break
		}
		if i%spoolGroup == spoolGroup-1 {
			if err = f.Sync(); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}
