package ltxtail

import (
	"context"
	"fmt"
	"time"
)

// patience is how long a call of the file system may take before the cell that
// it is about is left behind, checks how often it is looked at meanwhile.
const (
	patience = 2 * time.Second
	checks   = 4
)

// maxSilent is how many cells may be left behind at a time, each with a
// goroutine. A tree of which more does not answer is waited for.
const maxSilent = 64

// breath is how many cells that events name are read at a stretch before the
// walk goes on: whatever the node does, a walk comes to its end, and a busy
// cell does not wait for ten thousand idle ones.
const breath = 64

// readers see to it that cells are read, those that events name and those of
// a walk: by one goroutine, which is there while there is something to read
// and is replaced by another when a call that it makes does not come back. The
// lock of the Tail guards it.
type readers struct {
	tail     *Tail
	patience time.Duration

	// current is who reads, nil when nothing is to be read; silent are those
	// left behind, by the cell that they are at.
	current *reader
	silent  map[string]*reader
	// queue are the cells to be read besides the walk, queued the same;
	// stretch is how many of them were read since the walk last was served.
	queue   []string
	queued  map[string]struct{}
	stretch int
	walk    *walk
	// changed is signalled when a cell was left behind.
	changed chan struct{}
}

// walk is a walk under way.
type walk struct {
	ctx context.Context
	// scopes are the cells still to be read, after those in gone.
	gone, scopes []string
	errs         []error
	// done is closed at the end, when err is that of ctx if it was cut short.
	done chan struct{}
	err  error
}

// reader is a goroutine that reads one cell after the other.
type reader struct {
	reading
	in *readers

	// of is the walk that the cell is read for, nil if for none. again says
	// that it is to be read once more, named that an event brought a name of
	// it since the reading began.
	of           *walk
	again, named bool
	// err says what does not answer, left that it was left behind for that.
	left bool
	err  error
	// over is closed when it ended or was left behind.
	over chan struct{}

	// timer looks after it: seen is the call under way when it last did, quiet
	// how often it was the same.
	timer *time.Timer
	seen  uint64
	quiet int
}

// enqueue has a cell read. While it is read already it is so once more: the
// reading may be past what is to be seen.
func (rs *readers) enqueue(scope string) {
	if rs.silent[scope] != nil {
		return // it is read again when it answers
	}
	if r := rs.current; r != nil && r.scope == scope {
		r.again = true
		return
	}
	if _, ok := rs.queued[scope]; !ok {
		rs.queued[scope] = struct{}{}
		rs.queue = append(rs.queue, scope)
	}
	rs.start()
}

// named takes that an event brought a name of a cell.
func (rs *readers) named(scope string) {
	if r := rs.silent[scope]; r != nil {
		r.named = true
	}
	if r := rs.current; r != nil && r.scope == scope {
		r.named = true
	}
}

// begin has the cells of a walk read.
func (rs *readers) begin(w *walk) {
	rs.walk = w
	rs.start()
}

// start has somebody read.
func (rs *readers) start() {
	if rs.current != nil {
		return
	}
	t := rs.tail
	r := &reader{in: rs, over: make(chan struct{})}
	r.files, r.watches, r.root, r.clock = t.cfg.FS, &t.watches, t.cfg.Root, &t.tree.clock
	r.timer = time.AfterFunc(rs.patience/checks, r.check)
	rs.current = r
	go r.run()
}

// next returns the cell to read now and the walk that it is read for.
func (rs *readers) next() (scope string, of *walk, ok bool) {
	if w := rs.walk; w != nil && w.ctx.Err() != nil {
		rs.endWalk(w.ctx.Err())
	}
	if len(rs.queue) > 0 && (rs.walk == nil || rs.stretch < breath) {
		scope, rs.queue = rs.queue[0], rs.queue[1:]
		delete(rs.queued, scope)
		rs.stretch++
		return scope, nil, true
	}
	rs.stretch = 0
	if w := rs.walk; w != nil {
		if scope, ok := rs.nextOf(w); ok {
			return scope, w, true
		}
		rs.endWalk(nil)
		return rs.next()
	}
	return "", nil, false
}

// nextOf returns the next cell of a walk that answers.
func (rs *readers) nextOf(w *walk) (scope string, ok bool) {
	for {
		switch {
		case len(w.gone) > 0:
			scope, w.gone = w.gone[0], w.gone[1:]
		case len(w.scopes) > 0:
			scope, w.scopes = w.scopes[0], w.scopes[1:]
		default:
			return "", false
		}
		r := rs.silent[scope]
		if r == nil {
			return scope, true
		}
		w.errs = append(w.errs, r.err)
	}
}

func (rs *readers) endWalk(err error) {
	rs.walk.err = err
	close(rs.walk.done)
	rs.walk = nil
}

// run reads until there is nothing to read, or until it was left behind and
// is back.
func (r *reader) run() {
	t := r.in.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		scope, of, ok := r.in.next()
		if !ok {
			break
		}
		r.of, r.again, r.named = of, false, false
		t.tree.begin(&r.reading, scope)
		err := r.read(t)
		if r.left {
			r.back()
			return
		}
		r.scope = ""
		if r.again {
			r.in.enqueue(scope)
		}
		switch {
		case err == nil:
		case of != nil:
			of.errs = append(of.errs, err)
		default:
			t.tree.stats.LastError = err.Error()
		}
	}
	r.timer.Stop()
	r.in.current = nil
	close(r.over)
}

// read looks at a cell, giving up the lock meanwhile. Facets come and go with
// what their root does, so they are counted again when there was something to
// read of it.
func (r *reader) read(t *Tail) error {
	t.mu.Unlock()
	r.watches.flush()
	read, err := r.scanCell()
	t.mu.Lock()
	if t.tree.take(&r.reading) && r.named {
		// The name may be one of what is there now.
		r.again = true
		t.tree.suspect(r.scope)
	}
	if !read {
		return err
	}
	t.mu.Unlock()
	facets := r.countFacets()
	t.mu.Lock()
	if c := t.tree.cells[r.scope]; c != nil {
		c.facets = facets
	}
	return err
}

// check looks whether the reader goes on, and has another in its place if not.
func (r *reader) check() {
	rs := r.in
	rs.tail.mu.Lock()
	defer rs.tail.mu.Unlock()
	if rs.current != r {
		return
	}
	call, dir, watching := r.waits()
	if dir == "" || call != r.seen {
		r.seen, r.quiet, r.err = call, 0, nil
	} else if r.quiet++; r.quiet >= checks && rs.leave(r, dir, watching) {
		return
	}
	r.timer.Reset(rs.patience / checks)
}

// leave leaves a reader behind, unless there are too many already.
func (rs *readers) leave(r *reader, dir string, watching bool) bool {
	stats := &rs.tail.tree.stats
	stats.Unreadable = max(stats.Unreadable, len(rs.silent)+1)
	if r.err == nil {
		r.err = silentError(dir, rs.tail.cfg.Now().Add(-rs.patience))
	}
	if len(rs.silent) >= maxSilent {
		stats.LastError = fmt.Sprintf("walks wait, %d cells do not answer: %v", len(rs.silent)+1, r.err)
		return false
	}
	stats.LastError = r.err.Error()
	r.left = true
	rs.silent[r.scope] = r
	if r.of != nil && r.of == rs.walk {
		r.of.errs = append(r.of.errs, r.err)
	}
	if watching {
		rs.tail.watches.miss()
	}
	rs.current = nil
	close(r.over)
	if rs.walk != nil || len(rs.queue) > 0 {
		rs.start()
	}
	select {
	case rs.changed <- struct{}{}:
	default:
	}
	return true
}

// back ends a reader that was left behind: what it found is taken, and its
// cell is read anew, as it is now.
func (r *reader) back() {
	rs := r.in
	delete(rs.silent, r.scope)
	rs.tail.tree.suspect(r.scope)
	rs.enqueue(r.scope)
}

func silentError(dir string, since time.Time) error {
	return fmt.Errorf("read %s: does not answer since %s", dir, since.UTC().Format(time.RFC3339))
}
