package delivery

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowFS holds the syncs of segments back until it is told to go on.
type slowFS struct {
	osFS
	began, goOn chan struct{}
}

type slowFile struct {
	File
	fs *slowFS
}

func (s *slowFS) Create(name string) (File, error) {
	f, err := s.osFS.Create(name)
	if err != nil || filepath.Ext(name) != segmentSuffix {
		return f, err
	}
	return &slowFile{f, s}, nil
}

func (f *slowFile) Sync() error {
	f.fs.began <- struct{}{}
	<-f.fs.goOn
	return f.File.Sync()
}

// begun waits for a sync to begin.
func begun(t *testing.T, began <-chan struct{}) {
	t.Helper()
	select {
	case <-began:
	case <-time.After(90 * time.Second):
		t.Fatal("no sync begins")
	}
}

// TestEntriesAreAddedDuringASync shows that a sync covers what was committed
// before it began and nothing that came while it ran, and that neither waits
// for the other.
func TestEntriesAreAddedDuringASync(t *testing.T) {
	fs := &slowFS{began: make(chan struct{}, 1), goOn: make(chan struct{}, 1)}
	fs.goOn <- struct{}{} // the head of the segment
	s := openSpool(t, t.TempDir(), Options{FS: fs})
	begun(t, fs.began)

	put(t, s, unit(1, 1), "before")
	var first, second sync.WaitGroup
	var errs [2]error
	first.Go(func() { errs[0] = s.Sync(t.Context()) })
	begun(t, fs.began)
	put(t, s, unit(1, 2), "during")
	second.Go(func() { errs[1] = s.Sync(t.Context()) })
	if got := s.Last(); got != 0 {
		t.Fatalf("%d entries are visible before the sync ended", got)
	}
	fs.goOn <- struct{}{}
	first.Wait()
	if got := s.Last(); got != 1 {
		t.Fatalf("entry %d is the last visible one after the sync of the first", got)
	}
	begun(t, fs.began)
	fs.goOn <- struct{}{}
	second.Wait()
	if got := s.Last(); got != 2 || errors.Join(errs[:]...) != nil {
		t.Fatalf("entry %d is the last visible one after both syncs, %v", got, errors.Join(errs[:]...))
	}
}

// TestOtherFormatsAreRefused gives a segment the mark of other formats and
// programs, with a checksum that fits.
func TestOtherFormatsAreRefused(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, Options{})
	put(t, s, unit(1, 1), "text")
	syncSpool(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := segmentPath(dir, 1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for magic, want := range map[string]string{
		"cxspool1": "has format 1, older than the 2", "cxspool3": "has format 3, newer than the 2", "cypool12": "is of another program",
	} {
		b := append([]byte(magic), whole[8:]...)
		binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], crcTable))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSpool(dir, Options{})
		if err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("%s: %v", magic, err)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != string(b) {
			t.Errorf("%s: the refused segment was changed, %v", magic, err)
		}
	}
}

// TestIdentityLongerThanItsRoom writes heads around the room that is kept for
// them, in memory and spilled.
func TestIdentityLongerThanItsRoom(t *testing.T) {
	dir := t.TempDir()
	for _, budget := range []int64{0, 1} {
		s := openSpool(t, filepath.Join(dir, "spool"), Options{MemoryBudget: budget})
		for i, n := range []int{headRoom - 300, headRoom - 150, headRoom - 100, headRoom, 3 * headRoom} {
			u := unit(i, uint64(i+1))
			u.Scope = strings.Repeat("s", n)
			put(t, s, u, "text")
		}
		syncSpool(t, s)
		s.Close()
		s = openSpool(t, filepath.Join(dir, "spool"), Options{})
		n := 0
		for e, err := range s.Entries(0) {
			if err != nil {
				t.Fatal(err)
			}
			if got := entryTexts(t, e); len(got) != 1 || got[0] != "text" {
				t.Errorf("entry %d holds %q", e.Seq(), got)
			}
			n++
		}
		if n != 5 {
			t.Errorf("%d of 5 entries", n)
		}
		s.Close()
		if err := os.RemoveAll(filepath.Join(dir, "spool")); err != nil {
			t.Fatal(err)
		}
	}
}
