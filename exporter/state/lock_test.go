package state

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A child process has a copy of every open file between its fork and its exec,
// which may take long on a busy machine: a directory that is closed meanwhile
// can be opened again at once.
func TestChildHoldsNoLock(t *testing.T) {
	path := t.TempDir()
	d, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("a directory that is open is opened again: %v", err)
	}
	copied, err := unix.Dup(int(d.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
