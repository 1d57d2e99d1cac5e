package ltxtail

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrRoot is wrapped by the error of a walk that could not even read the
// directory it starts from.
var ErrRoot = errors.New("watch directory cannot be read")

// ErrSilent is wrapped by the error of a walk that was given up because the
// directory did not answer: a call of the file system is still under way. The
// next walk may wait for it, no other method does.
var ErrSilent = errors.New("watch directory does not answer")

// silence is how long after the end of its context a walk may take to notice
// it. It asks after every cell.
const silence = 500 * time.Millisecond

// Scan walks the whole tree once. A directory that is as it was when it was
// read is not read again before reread is over: it is only asked for its
// state, two calls for a cell. An unreadable directory is an error that names
// it; the rest is walked all the same. So is one that does not answer for two
// seconds, but for the root: what is below that waits for it.
//
// A walk that ctx ends counts as none, though what it saw is known: the error
// is that of ctx. A call of the file system cannot be ended, so the walk is
// left behind when it hangs in one; the error then wraps ErrSilent too.
func (t *Tail) Scan(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- t.scan(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(silence):
		return fmt.Errorf("%w: %w", ErrSilent, ctx.Err())
	}
}

func (t *Tail) scan(ctx context.Context) error {
	t.walking <- struct{}{}
	defer func() { <-t.walking }()
	if err := ctx.Err(); err != nil {
		return err
	}
	gone, err := t.scanRoot()
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRoot, err)
		t.finishScan(1, err)
		return err
	}
	w := &walk{ctx: ctx, gone: gone, scopes: t.tree.names, done: make(chan struct{})}
	t.mu.Lock()
	t.readers.begin(w)
	t.mu.Unlock()
	<-w.done
	if w.err != nil {
		return w.err
	}
	err = errors.Join(w.errs...)
	t.finishScan(len(w.errs), err)
	return err
}

// scanRoot reads the names of the cell directories if they changed, and
// returns those that went away. It waits for the root, and says so.
func (t *Tail) scanRoot() (gone []string, err error) {
	t.watches.hope()
	a := &asker{files: t.cfg.FS, watches: &t.watches}
	over := false
	timer := time.AfterFunc(t.readers.patience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !over {
			t.tree.stats.Unreadable = max(t.tree.stats.Unreadable, 1)
			t.tree.stats.RootError = silentError(t.cfg.Root, t.cfg.Now().Add(-t.readers.patience)).Error()
			t.tree.stats.LastError = t.tree.stats.RootError
		}
	})
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		over = true
		timer.Stop()
	}()
	t.mu.Lock()
	t.tree.beginRoot()
	t.mu.Unlock()
	now, fresh, err := t.tree.lookAtRoot(a, t.cfg.Root)
	if err != nil || fresh {
		return nil, err
	}
	entries, err := a.readDir(t.cfg.Root)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tree.setNames(entries, now), nil
}

func (t *Tail) finishScan(unreadable int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tree.stats.Scans++
	t.tree.stats.Unreadable = unreadable
	t.tree.stats.LastError, t.tree.stats.RootError = "", ""
	if err != nil {
		t.tree.stats.LastError = err.Error()
	}
	if errors.Is(err, ErrRoot) {
		t.tree.stats.RootError = err.Error()
	}
}
