package delivery

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A delivery.db that cannot be written is told of, although the sink stores
// everything and would only be started again and again.
func TestJournalThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Pointer[error]
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{Failed: func(err error) { told.Store(&err) }}, sink)
		unitOf(t, r.spool, unit(1, 1), 1)
		r.flush(t)
		if err := told.Load(); err != nil {
			t.Fatalf("told while nothing fails: %v", *err)
		}
		if _, err := r.engine.journal.db.Exec("PRAGMA query_only = 1"); err != nil {
			t.Fatal(err)
		}
		unitOf(t, r.spool, unit(1, 2), 1)
		time.Sleep(time.Second)
		if told.Load() == nil {
			t.Error("not told")
		}
		if _, err := r.engine.journal.db.Exec("PRAGMA query_only = 0"); err != nil {
			t.Fatal(err)
		}
		r.flush(t)
		wantCertified(t, sink, 1, 2)
		r.stop()
	})
}

// What counts as a failure of the disk: not a want of descriptors, and not
// what a sink says.
func TestErrorsOfTheDisk(t *testing.T) {
	for _, tt := range []struct {
		err  error
		disk bool
	}{
		{fmt.Errorf("write: %w", syscall.EIO), true},
		{fmt.Errorf("write: %w", syscall.ENOSPC), true},
		{fmt.Errorf("write: %w", syscall.EROFS), true},
		{fmt.Errorf("read: %w", ErrCorrupt), true},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}, false},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENFILE}, false},
		{errors.New("refused"), false},
		{nil, false},
	} {
		if got := ofDisk(tt.err); got != tt.disk {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}
