package delivery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDiskAtEveryWrite fails each change to the disk in turn, whole or
// half done. The spool takes more entries afterwards, or says that it does
// not; nothing that was durable is lost and nothing appears twice.
func TestFullDiskAtEveryWrite(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 2048)
	for _, short := range []bool{false, true} {
		for nth := 1; ; nth++ {
			fs := newWatchedFS()
			dir := filepath.Join(t.TempDir(), "spool")
			s := openSpool(t, dir, Options{FS: fs, SegmentBytes: 8 << 10, MemoryBudget: 16 << 10})
			ops, failed := 0, ""
			fs.before = func(op, name string) (bool, error) {
				if op == "remove" || op == "truncate" {
					return false, nil
				}
				if ops++; ops == nth {
					failed = op + " " + filepath.Base(name)
					return short, syscall.ENOSPC
				}
				return false, nil
			}
			committed, durable, errs := fillUntilBroken(t, s, big)
			s.Close()
			if failed == "" {
				if nth < 10 {
					t.Fatalf("only %d changes to the disk", nth)
				}
				break
			}
			if len(errs) == 0 {
				t.Fatalf("failing %s (%d) showed nowhere", failed, nth)
			}
			for _, err := range errs[:1] {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("failing %s: error %v", failed, err)
				}
			}
			s = openSpool(t, dir, Options{})
			if s.Last() < durable || s.Last() > committed {
				t.Fatalf("failing %s: %d entries after reopening, %d were durable, %d committed", failed, s.Last(), durable, committed)
			}
			for e, err := range s.Entries(0) {
				if err != nil {
					t.Fatal(err)
				}
				if got := entryTexts(t, e); len(got) != 2 || got[0] != big[:e.Position().TXID*1000] {
					t.Fatalf("failing %s: entry %d came back wrong", failed, e.Seq())
				}
			}
			left, _ := filepath.Glob(filepath.Join(dir, spillPrefix+"*"))
			if len(left) > 0 {
				t.Fatalf("failing %s: %v left", failed, left)
			}
			s.Close()
			os.RemoveAll(dir)
		}
	}
}

// fillUntilBroken commits eight entries, each once more after an error.
func fillUntilBroken(t *testing.T, s *Spool, big string) (committed, durable uint64, errs []error) {
	for txid := uint64(1); txid <= 8; txid++ {
		for range 2 {
			// Two megabytes of pages spill; the number tells the content.
			seq, err := tryPut(s, unit(1, txid), big[:txid*1000], "end")
			if err != nil {
				errs = append(errs, err)
				continue
			}
			committed = seq
			if err := s.Sync(t.Context()); err != nil {
				errs = append(errs, err)
			} else {
				durable = seq
			}
			break
		}
		if err := s.Err(); err != nil {
			if _, err := s.Begin(unit(1, 9)); err == nil {
				t.Fatal("a broken spool took an entry")
			}
			return committed, durable, errs
		}
	}
	if committed != 8 {
		t.Fatalf("%d of 8 entries committed by a spool that is not broken: %v", committed, errs)
	}
	return committed, durable, errs
}

func TestFailedSyncIsFinal(t *testing.T) {
	fs := newWatchedFS()
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), Options{FS: fs})
	put(t, s, unit(1, 1), "x")
	changed := s.files.changes()
	fs.before = func(op, name string) (bool, error) {
		if op == "sync" {
			return false, syscall.EIO
		}
		return false, nil
	}
	if err := s.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	fs.before = func(string, string) (bool, error) { return false, nil }
	if err := s.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("second sync: %v; what the first wrote is unknown", err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	if s.Last() != 0 {
		t.Errorf("entry %d is visible", s.Last())
	}
}

func TestAppliedMarkerSurvivesATornWrite(t *testing.T) {
	dir := t.TempDir()
	m, err := openMarker(osFS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{3, 7, 9} {
		if err := m.set(n); err != nil {
			t.Fatal(err)
		}
	}
	m.close()
	path := filepath.Join(dir, markerName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		torn := append([]byte(nil), whole...)
		torn[at] ^= 0xff
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := openMarker(osFS{}, dir)
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		if got := m.get(); got != 9 && got != 7 {
			t.Errorf("byte %d: %d, want 9 or the one before", at, got)
		}
		m.close()
	}
	if err := os.WriteFile(path, make([]byte, len(whole)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openMarker(osFS{}, dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no valid slot: %v", err)
	}
}
