package delivery

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"celldexport/envelope"

	"github.com/google/go-cmp/cmp"
)

// FuzzSegment opens spools whose only file was tampered with: they open or
// not, but what they yield is what was written.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	s := openSpool(f, dir, Options{Salt: func() uint32 { return 5 }})
	var want [][]string
	for txid := range uint64(4) {
		texts := []string{"one", string(bytes.Repeat([]byte("two"), int(txid)*50))}
		put(f, s, unit(1, txid+1), texts...)
		want = append(want, texts)
		if txid == 1 {
			syncSpool(f, s)
		}
	}
	syncSpool(f, s)
	path := s.files.active().path
	s.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(append(slices.Clone(whole), whole[segmentHead:]...))
	f.Add([]byte(segmentMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSpool(dir, Options{})
		if err != nil {
			return
		}
		defer s.Close()
		n := 0
		for e, err := range s.Entries(0) {
			if err != nil {
				t.Fatalf("the last segment was checked when it was opened, yet: %v", err)
			}
			if n == len(want) || !slices.Equal(entryTexts(t, e), want[n]) {
				t.Fatalf("entry %d is not what was written", e.Seq())
			}
			n++
		}
	})
}

// FuzzSummary holds the head of an entry to: what decodes, encodes to the same
// bytes.
func FuzzSummary(f *testing.F) {
	name := "alice"
	s := summary{unit: unit(1, 7), pages: 2, records: 3, bytes: 400, counted: 3, positions: 1, link: true, spooledAt: 12}
	f.Add(s.append(nil))
	s.unit.CellName, s.unit.Uncertified, s.unit.Sink, s.snapshot = &name, true, "bucket", true
	f.Add(s.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again summary
		if s.decode(b, new(Unit)) != nil {
			return
		}
		other := unit(1, 7)
		other.CellName, other.Sink = &name, "bucket"
		for _, like := range []*Unit{{}, &s.unit, &other} { // only memory depends on it
			if err := again.decode(s.append(nil), like); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.unit, again.unit); diff != "" {
				t.Fatal(diff)
			}
			again = summary{}
		}
	})
}

func TestAccountReadsBack(t *testing.T) {
	name := ""
	full := account{
		stream: testStream(1), epoch: 3, counter: envelope.Counter{Positions: 1, Records: 2, Last: envelope.Position{Epoch: 3, TXID: 4, Commit: 5}},
		through: envelope.Position{Epoch: 3, TXID: 9, Commit: 9}, mark: &envelope.Position{Epoch: 3, TXID: 1},
		pending: &pendingMark{seq: 8, through: envelope.Position{Epoch: 3, TXID: 2, Commit: 1 << 63}, positions: 6, records: 7},
		hold:    holdOrder | holdLost, closed: true, cellName: &name, committedAt: 1_790_000_000_000, node: "node-a", scope: "Cart:1", place: located{4, 1 << 50},
	}
	for _, want := range []account{full, {stream: testStream(1), epoch: 3}} {
		got := account{stream: want.stream, epoch: want.epoch}
		if err := got.decode(want.encode()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(account{}, pendingMark{}, located{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for n := range want.encode() {
			if err := new(account).decode(want.encode()[:n]); err == nil {
				t.Errorf("%d bytes of an account decode", n)
			}
		}
	}
	if err := new(account).decode([]byte{9}); err == nil {
		t.Error("a newer format decodes")
	}
	// The format before told no places: its records may be anywhere before.
	before := full.encode()
	before = before[:len(before)-len(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(full.place.first)), uint64(full.place.last)))]
	before[0] = 1
	var got account
	if err := got.decode(before); err != nil || got.place.first > full.place.first || got.through != full.through {
		t.Errorf("format 1: %+v, %v", got, err)
	}
}
