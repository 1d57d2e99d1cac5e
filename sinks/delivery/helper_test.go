package delivery

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"celldexport/envelope"
)

func testStream(n int) envelope.Stream {
	return envelope.Stream{Script: "shop", Class: "Cart", Cell: fmt.Sprintf("Cart:%d", n), Incarnation: 3}
}

// unit is a unit of stream n at txid of epoch 3.
func unit(n int, txid uint64) Unit {
	return Unit{
		Form: FormUnit, Stream: testStream(n), CommittedAt: 1_790_000_000_000 + int64(txid), Node: "node-a",
		Scope: testStream(n).Cell, Position: envelope.Position{Epoch: 3, TXID: txid, Commit: txid},
		MinTXID: txid, MaxTXID: txid, PageSize: 4096, Commit: 2, Checksum: 1<<63 | txid,
	}
}

func record(u Unit, kind envelope.Kind, text string) envelope.Encoded {
	return envelope.Encoded{
		Envelope: envelope.Envelope{
			Stream: u.Stream, CellName: u.CellName, Position: u.Position, CommittedAt: u.CommittedAt,
			Node: u.Node, Origin: envelope.Live, Fragment: 1, Fragments: 1,
		},
		Kind: kind, Body: fmt.Appendf(nil, `{"kind":%q,"text":%q}`, kind, text),
	}
}

// put spools an entry of rows records with the given texts and, for a unit,
// two pages.
func put(t testing.TB, s *Spool, u Unit, texts ...string) uint64 {
	t.Helper()
	seq, err := tryPut(s, u, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func tryPut(s *Spool, u Unit, texts ...string) (uint64, error) {
	w, err := s.Begin(u)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	if u.Form == FormUnit {
		for pgno := uint32(1); pgno <= 2; pgno++ {
			if err := w.Page(pgno, testPage(u.Position.TXID, pgno)); err != nil {
				return 0, err
			}
		}
	}
	for _, text := range texts {
		e := record(u, envelope.KindRows, text)
		if err := w.Record(&e); err != nil {
			return 0, err
		}
	}
	return w.Commit()
}

func testPage(txid uint64, pgno uint32) []byte {
	return bytes.Repeat([]byte{byte(txid), byte(pgno)}, 2048)
}

func syncSpool(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// texts reads an entry back: the text of every record, after checking the
// envelope and the pages.
func entryTexts(t testing.TB, e *Stored) []string {
	t.Helper()
	u := e.Unit()
	var got []string
	for rec, err := range e.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Stream != u.Stream || rec.Position != u.Position || rec.Node != u.Node || rec.CommittedAt != u.CommittedAt {
			t.Fatalf("entry %d: envelope %+v is not that of the unit %+v", e.Seq(), rec.Envelope, u)
		}
		_, rest, _ := bytes.Cut(rec.Body, []byte(`"text":"`))
		got = append(got, string(bytes.TrimSuffix(rest, []byte(`"}`))))
	}
	pgno := uint32(0)
	for page, err := range e.Pages() {
		if err != nil {
			t.Fatal(err)
		}
		pgno++
		if page.Number != pgno || !bytes.Equal(page.Data, testPage(u.Position.TXID, pgno)) {
			t.Fatalf("entry %d: page %d came back wrong", e.Seq(), page.Number)
		}
	}
	if int64(pgno) != e.PageCount() {
		t.Fatalf("entry %d: %d of %d pages", e.Seq(), pgno, e.PageCount())
	}
	return got
}

func openSpool(t testing.TB, dir string, opts Options) *Spool {
	t.Helper()
	s, err := OpenSpool(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func seqs(t testing.TB, s *Spool, after uint64) []uint64 {
	t.Helper()
	var got []uint64
	for e, err := range s.Entries(after) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq())
	}
	return got
}

func upTo(first, last uint64) []uint64 {
	var want []uint64
	for n := first; n <= last; n++ {
		want = append(want, n)
	}
	return want
}

func equalSeqs(t testing.TB, got, want []uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("entries %v, want %v", got, want)
	}
}
