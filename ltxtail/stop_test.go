package ltxtail

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A walk that is told to end does so at the next cell and counts as none: what
// it did not see is not taken for gone, and the next one sees it.
func TestWalkCutShort(t *testing.T) {
	const cells = 40
	w := newWalker(t, nil)
	for i := range cells {
		put(t, w.root, fmt.Sprintf("Cart:%02d", i), 1, 1)
	}
	ctx, stop := context.WithCancel(t.Context())
	w.fs.asking = func(name string) {
		if strings.Contains(name, "Cart:07") {
			stop()
		}
	}
	if err := w.tail.Scan(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrSilent) {
		t.Fatalf("a walk told to end: %v", err)
	}
	w.fs.asking = nil
	if once, _ := w.tail.Walked(); once || w.tail.Stats().LastError != "" {
		t.Errorf("a walk cut short counts: %+v", w.tail.Stats())
	}
	if n := len(w.tail.Cells()); n == 0 || n > 8 {
		t.Errorf("%d cells are known after a walk that ended at the eighth", n)
	}
	if err := w.tail.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(w.tail.Dirty()); n != cells {
		t.Errorf("%d cells of %d are to be looked at after the next walk", n, cells)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	w.now = w.now.Add(time.Minute)
	w.fs.asked = nil
	if err := w.tail.Scan(ended); !errors.Is(err, context.Canceled) || len(w.fs.asked) > 0 {
		t.Errorf("a walk that has no time: %v, asked for %v", err, w.fs.asked)
	}
	if _, whole := w.tail.Walked(); !whole {
		t.Error("a walk that has no time undoes the one before")
	}
}

// A walk that hangs in the file system is left behind, whoever makes it; when
// the call comes back, walks go on.
func TestWalkOfASilentDirectory(t *testing.T) {
	for _, part := range []string{"", cellA + "/ltx", cellA + "/ltx/e1/.db.sqlite-litestream/ltx/0"} {
		t.Run(filepath.Base(part), func(t *testing.T) {
			w := newWalker(t, nil)
			put(t, w.root, cellA, 1, 1)
			w.after(0, "e1:1 live")
			put(t, w.root, cellA, 1, 2)
			w.now = w.now.Add(time.Second)
			hangs, back := make(chan struct{}), make(chan struct{})
			first := true
			w.fs.asking = func(name string) {
				if first && name == filepath.Join(w.root, part) {
					first = false
					close(hangs)
					<-back
				}
			}
			run, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- w.tail.Run(run) }()
			await(t, "a walk that hangs", hangs)
			stop()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := w.tail.Scan(ctx); !errors.Is(err, ErrSilent) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a walk behind one that hangs: %v", err)
			}
			close(back)
			if err := await(t, "the end of the tail", ran); err != nil {
				t.Error(err)
			}
			w.fs.asking = nil
			w.after(time.Second, "e1:1,2 live")
		})
	}
}
