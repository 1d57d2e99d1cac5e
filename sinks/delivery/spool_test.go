package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"

	"github.com/google/go-cmp/cmp"
)

func TestEntriesComeBackAsTheyWereWritten(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, Options{SegmentBytes: 1 << 20, MemoryBudget: 64 << 10})
	name := "alice"
	var units []Unit
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) string { // does not compress
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + rng.IntN(26))
		}
		return string(b)
	}
	var texts [][]string
	for i, sizes := range [][]int{{}, {1}, {10, 20}, {blockRaw - 60}, {blockRaw, 1, blockRaw + 1}, {3 << 20}, {7}, {}, {1 << 20, 1 << 20, 5}} {
		u := unit(i, uint64(i+1))
		if i%2 == 1 {
			u.CellName = &name
			u.Stream.Facet, u.Uncertified, u.Sink = "facets/ab", true, "bucket"
		}
		var part []string
		for _, n := range sizes {
			part = append(part, noise(n))
		}
		if seq := put(t, s, u, part...); seq != uint64(i+1) {
			t.Fatalf("entry %d got number %d", i+1, seq)
		}
		units, texts = append(units, u), append(texts, part)
	}
	syncSpool(t, s)
	check := func(s *Spool) {
		t.Helper()
		i := 0
		for e, err := range s.Entries(0) {
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(units[i], e.Unit()); diff != "" {
				t.Errorf("unit of entry %d (-want +got):\n%s", e.Seq(), diff)
			}
			if got := entryTexts(t, e); !slices.Equal(got, texts[i]) {
				t.Errorf("records of entry %d differ", e.Seq())
			}
			records, positions := e.Counted()
			if records != uint64(len(texts[i])) || positions != min(1, records) {
				t.Errorf("entry %d counts %d records at %d positions", e.Seq(), records, positions)
			}
			i++
		}
		if i != len(units) {
			t.Errorf("%d entries, want %d", i, len(units))
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) < 3 {
		t.Errorf("only %v: entries of 5 MiB did not rotate segments of 1 MiB", files)
	}
	for _, f := range files {
		if strings.Contains(f, spillPrefix) {
			t.Errorf("temporary file %s left", f)
		}
	}
	s = openSpool(t, dir, Options{})
	check(s)
	equalSeqs(t, seqs(t, s, 4), upTo(5, 9))
}

func TestEntriesAreVisibleOnlyWhenDurable(t *testing.T) {
	s := openSpool(t, t.TempDir(), Options{})
	put(t, s, unit(1, 1), "a")
	if got := seqs(t, s, 0); got != nil || s.Last() != 0 {
		t.Fatalf("entries %v, last %d before Sync", got, s.Last())
	}
	changed := s.files.changes()
	syncSpool(t, s)
	select {
	case <-changed:
	default:
		t.Error("the sync woke nobody")
	}
	equalSeqs(t, seqs(t, s, 0), upTo(1, 1))
}

func TestEntriesLeaveWhenAppliedAndAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, Options{SegmentBytes: 8 << 10})
	page := bytes.Repeat([]byte{1}, 10)
	for i := range uint64(100) {
		put(t, s, unit(1, i+1), fmt.Sprint(i), string(page))
	}
	syncSpool(t, s)
	full, entries := s.Usage()
	if entries != 100 || full < 20<<10 {
		t.Fatalf("usage %d bytes, %d entries", full, entries)
	}
	if err := s.release(100); err != nil {
		t.Fatal(err)
	}
	if bytes, entries := s.Usage(); bytes != full || entries != 100 {
		t.Errorf("entries left before they were applied: %d bytes, %d entries", bytes, entries)
	}
	if err := s.SetApplied(60); err != nil {
		t.Fatal(err)
	}
	if first := s.files.first(); first <= 1 || first > 61 {
		t.Errorf("first entry is %d after 60 were done", first)
	}
	if _, entries := s.Usage(); entries != 40 {
		t.Errorf("%d entries left, want 40", entries)
	}
	if err := s.SetApplied(101); err == nil {
		t.Error("an entry that is not there was marked applied")
	}
	if err := s.SetApplied(100); err != nil {
		t.Fatal(err)
	}
	if bytes, entries := s.Usage(); bytes > 8<<10 || entries != 0 {
		t.Errorf("a spool that is done takes %d bytes for %d entries", bytes, entries)
	}
	s.Close()
	s = openSpool(t, dir, Options{})
	if s.Last() != 100 || s.Applied() != 100 {
		t.Errorf("last %d, applied %d after reopening", s.Last(), s.Applied())
	}
	if seq := put(t, s, unit(1, 200)); seq != 101 {
		t.Errorf("next entry has number %d", seq)
	}
}

func TestWatermarksNeedNoApplying(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, Options{})
	put(t, s, unit(1, 1), "a")
	w := unit(1, 1)
	w.Form, w.Sink = FormWatermark, "bucket"
	put(t, s, w, "mark")
	syncSpool(t, s)
	if err := s.SetApplied(1); err != nil {
		t.Fatal(err)
	}
	if got := s.Applied(); got != 2 {
		t.Errorf("applied %d, want 2", got)
	}
	put(t, s, w, "mark")
	if got := s.Applied(); got != 3 {
		t.Errorf("applied %d, want 3", got)
	}
	syncSpool(t, s)
	s.Close()
	if got := openSpool(t, dir, Options{}).Applied(); got != 3 {
		t.Errorf("applied %d after reopening, want 3", got)
	}
}

func TestRecordOfAnotherPositionIsRefused(t *testing.T) {
	s := openSpool(t, t.TempDir(), Options{})
	for _, change := range []func(*envelope.Encoded){
		func(e *envelope.Encoded) { e.Position.Commit++ },
		func(e *envelope.Encoded) { e.Stream.Facet = "facets/x" },
		func(e *envelope.Encoded) { e.Node = "node-b" },
		func(e *envelope.Encoded) { e.CommittedAt++ },
		func(e *envelope.Encoded) { e.CellName = new(string) },
		func(e *envelope.Encoded) { e.Kind = "row" },
		func(e *envelope.Encoded) { e.Origin = "" },
	} {
		w, err := s.Begin(unit(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		e := record(unit(1, 1), envelope.KindRows, "x")
		change(&e)
		if err := w.Record(&e); err == nil {
			t.Errorf("%+v was taken", e)
		}
		if _, err := w.Commit(); err == nil {
			t.Error("an entry with a refused record was committed")
		}
	}
	if s.files.written != 0 {
		t.Errorf("%d entries committed", s.files.written)
	}
}

func TestTornEndIsDiscardedAtEveryLength(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, Options{Salt: func() uint32 { return 7 }})
	put(t, s, unit(1, 1), "first")
	syncSpool(t, s)
	durable := s.files.active().size
	put(t, s, unit(1, 2), "second", strings.Repeat("third", 100))
	syncSpool(t, s)
	path := s.files.active().path
	s.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(name string, content []byte, want uint64) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSpool(dir, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer s.Close()
		if s.Last() != want {
			t.Fatalf("%s: last entry %d, want %d", name, s.Last(), want)
		}
		if seq := put(t, s, unit(1, 9), "after"); seq != want+1 {
			t.Fatalf("%s: next entry %d", name, seq)
		}
		syncSpool(t, s)
		equalSeqs(t, seqs(t, s, 0), upTo(1, want+1))
	}
	try("whole", whole, 2)
	for n := durable; n < int64(len(whole)); n++ {
		try(fmt.Sprintf("cut at %d", n), whole[:n], 1)
		zeroed := append(slices.Clone(whole[:n]), make([]byte, int64(len(whole))-n)...)
		if !bytes.Equal(zeroed, whole) {
			try(fmt.Sprintf("zero from %d", n), zeroed, 1)
		}
	}
}

func TestDamageIsAnErrorNamingTheFile(t *testing.T) {
	fill := func(t *testing.T, segment int64) (string, string) {
		dir := t.TempDir()
		s := openSpool(t, dir, Options{SegmentBytes: segment})
		for i := range uint64(3) {
			put(t, s, unit(1, i+1), "text", fmt.Sprint(i))
			syncSpool(t, s)
		}
		path := s.files.list[0].path
		s.Close()
		return dir, path
	}
	t.Run("durable entry of the last segment", func(t *testing.T) {
		dir, path := fill(t, 0)
		flip(t, path, segmentHead+200)
		wantCorrupt(t, dir, path)
	})
	t.Run("head of an earlier segment", func(t *testing.T) {
		dir, path := fill(t, 64)
		flip(t, path, segmentHead+20)
		wantCorrupt(t, dir, path)
	})
	t.Run("segment head", func(t *testing.T) {
		dir, path := fill(t, 64)
		flip(t, path, 17)
		wantCorrupt(t, dir, path)
	})
	t.Run("missing segment", func(t *testing.T) {
		dir, _ := fill(t, 64)
		second := segmentPath(dir, 2)
		if err := os.Remove(second); err != nil {
			t.Fatal(err)
		}
		wantCorrupt(t, dir, segmentPath(dir, 3))
	})
	t.Run("applied entry gone", func(t *testing.T) {
		dir, path := fill(t, 0)
		s := openSpool(t, dir, Options{})
		if err := s.SetApplied(3); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if err := os.Truncate(path, segmentHead); err != nil {
			t.Fatal(err)
		}
		wantCorrupt(t, dir, dir)
	})
	t.Run("blocks of an earlier segment, found when read", func(t *testing.T) {
		dir, path := fill(t, 64)
		s := openSpool(t, dir, Options{})
		first, err := s.cursor(0).next()
		if err != nil {
			t.Fatal(err)
		}
		records := first.off + blockHead + 1
		s.Close()
		info, _ := os.Stat(path)
		for name, at := range map[string]int64{"records": records, "pages": info.Size() - 1} {
			flip(t, path, at)
			s := openSpool(t, dir, Options{})
			e, err := s.cursor(0).next()
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]error{"records": nil, "pages": nil}
			for _, err := range e.Records() {
				found["records"] = err
			}
			for _, err := range e.Pages() {
				found["pages"] = err
			}
			for section, err := range found {
				if section != name {
					if err != nil {
						t.Errorf("%s are damaged, reading %s: %v", name, section, err)
					}
				} else if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
					t.Errorf("%s are damaged: error %v, want one naming %s", name, err, path)
				}
			}
			s.Close()
			flip(t, path, at)
		}
	})
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantCorrupt(t *testing.T, dir, name string) {
	t.Helper()
	s, err := OpenSpool(dir, Options{})
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
		t.Fatalf("error %v, want one naming %s", err, name)
	}
}
