package exporter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// turns let one worker at a time work on streams and on what they share, so
// that none of it needs a lock of its own. A worker that waits for the bucket
// or for the node's disk lets go of the lock for that time, and only there.
// The rounds wait for each worker, but one that is still out when their
// patience ends is left behind: it goes on by itself, nothing else is done
// with its stream meanwhile, and the other streams go on. So a call that never
// comes back holds up the stream that made it.
type turns struct {
	*kit
	// mu is held by whoever works on streams: a worker, or the rounds.
	mu sync.Mutex
	// patience is how long the rounds wait for one stream, negative for as
	// long as it takes.
	patience time.Duration
	// behind are the streams that were left behind, limit how many may be.
	behind map[*stream]*turn
	limit  int
	// finish makes durable what a worker that was left behind has done.
	finish func(context.Context) error
	// stray is the first failure that such a worker met and that concerns all
	// streams: of our own state, or a node that another exporter took.
	stray error
}

// turn is the work on one stream. The lock of turns guards its fields.
type turn struct {
	turns  *turns
	stream *stream
	// call is what it waits for, nil while it works.
	call *call
	// over says that its work, or its proof, is done; left that nobody waited
	// for it, since when.
	over, left bool
	since      time.Time
	ended      chan struct{}
}

// call is a request or a file that does not depend on us.
type call struct{ op, name string }

const (
	// defaultPatience is long for a call to a bucket, and short for a change
	// to be late.
	defaultPatience = time.Second
	// muchToRead is more than the bytes of a unit or a restore should take.
	muchToRead = time.Minute
	// mostBehind is how many streams may be left behind, or fewer with a low
	// file limit. When there are as many the rounds wait.
	mostBehind = 64
	// thriftyBehind is how many of them may hold max_tx_bytes of a unit's pages
	// in memory. With more of them behind, units are read with an eighth.
	thriftyBehind = 4
)

// memory is how many bytes of pages a unit that is read now may hold. The
// caller holds the lock.
func (ts *turns) memory() int64 {
	most := ts.settings.Export.MaxTxBytes
	if len(ts.behind) < thriftyBehind {
		return most
	}
	return max(most/8, 1)
}

func newTurns(k *kit, patience time.Duration, finish func(context.Context) error) *turns {
	if patience == 0 {
		patience = defaultPatience
	}
	return &turns{kit: k, patience: patience, behind: make(map[*stream]*turn), limit: behindLimit(), finish: finish}
}

// behindLimit keeps streams that were left behind, which have up to three
// files and sockets each, to less than a fourth of the files there may be.
func behindLimit() int { return min(max(fileLimit()/16, 4), mostBehind) }

// turnKey is under which a context knows whose turn it is.
type turnKey struct{}

func (ts *turns) begin(s *stream) *turn {
	return &turn{turns: ts, stream: s, ended: make(chan struct{})}
}

// common is for calls that concern all streams: the rounds let go of the lock
// during them, so that streams that were left behind go on. The caller holds
// the lock.
func (ts *turns) common(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{}, ts.begin(nil))
}

// give has work done on a stream. done is false when it is not over yet: it
// goes on, and its error becomes stray. The caller holds the lock.
func (ts *turns) give(ctx context.Context, s *stream, work func(context.Context) error) (done bool, err error) {
	if ts.patience < 0 {
		return true, work(ctx)
	}
	t := ts.begin(s)
	go func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		err = t.work(ctx, work)
	}()
	ts.mu.Unlock()
	done = ts.wait(ctx, t)
	return done, err
}

// wait waits for the end of a turn, or leaves it behind when the patience with
// it is over, however many are once ctx ended. It takes the lock.
func (ts *turns) wait(ctx context.Context, t *turn) (over bool) {
	timer := time.NewTimer(ts.patience)
	defer timer.Stop()
	for {
		select {
		case <-t.ended:
		case <-timer.C:
		}
		ts.mu.Lock()
		if !t.over && (len(ts.behind) < ts.limit || ctx.Err() != nil) {
			t.leave()
		}
		if t.over || t.left {
			return t.over
		}
		ts.mu.Unlock()
		timer.Reset(max(ts.patience, time.Millisecond))
	}
}

// leave goes on without the turn.
func (t *turn) leave() {
	t.left, t.since = true, t.turns.now()
	t.stream.turn = t
	t.turns.behind[t.stream] = t
}

// work does a turn's work and ends it. The lock is held.
func (t *turn) work(ctx context.Context, work func(context.Context) error) error {
	ts := t.turns
	err := work(context.WithValue(ctx, turnKey{}, t))
	t.over = true
	close(t.ended)
	if !t.left {
		return err
	}
	if err == nil {
		err = ts.finish(ctx)
	}
	var wait *waitError
	if errors.As(err, &wait) {
		err = nil // the next round commits what could not be
	}
	if ts.stray == nil {
		ts.stray = err
	}
	t.stream.turn = nil
	delete(ts.behind, t.stream)
	return nil
}

// prove asks about a stream and waits for the answer. When it does not come
// in time the stream is left behind, and work is done on it once it comes:
// over is false then. The caller does not hold the lock.
func (ts *turns) prove(ctx context.Context, s *stream, ask func(context.Context), work func(context.Context) error) (over bool) {
	if ts.patience < 0 {
		ask(ctx)
		return true
	}
	t := ts.begin(s)
	go func() {
		ask(ctx)
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if t.left {
			_ = t.work(ctx, work) // it is kept as stray
			return
		}
		t.over = true
		close(t.ended)
	}()
	over = ts.wait(ctx, t)
	ts.mu.Unlock()
	return over
}

// reason says what a turn that was left behind waits for.
func (t *turn) reason() string {
	if t.call == nil {
		return "the bucket, or the node's disk, has not answered yet what is durable and still ours; the other streams go on"
	}
	return fmt.Sprintf("%s %s has not come to an end yet; the other streams go on", t.call.op, t.call.name)
}

// account is the stream's status, or what it waits for while it is left
// behind: one that has much to read is pending, one that takes too long for
// that waits. Its status stays what it was meanwhile, since not every turn
// changes it.
func (s *stream) account() Status {
	if s.turn == nil {
		return s.status
	}
	st := StatePending
	if s.turn.turns.now().Sub(s.turn.since) > muchToRead {
		st = StateWaiting // since it was left behind
	}
	return Status{State: st, Reason: s.turn.reason(), Since: s.turn.since}
}

// failed returns the failure that a worker left behind, once.
func (ts *turns) failed() error {
	err := ts.stray
	ts.stray = nil
	return err
}

// empty reports whether nobody is left behind.
func (ts *turns) empty() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.behind) == 0
}

// gather waits until nobody is left behind, and reports false when that takes
// too long. The caller does not hold the lock.
func (ts *turns) gather(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		var t *turn
		ts.mu.Lock()
		for _, t = range ts.behind {
			break
		}
		ts.mu.Unlock()
		if t == nil {
			return true
		}
		select {
		case <-t.ended:
		case <-timer.C:
			return false
		}
	}
}

// outside lets go of the lock, when a worker's turn has it, until back is
// called: the call does not depend on us. The worker makes one such call at a
// time.
func outside(ctx context.Context, c *call) (back func()) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return func() {}
	}
	return t.outside(c)
}

func (t *turn) outside(c *call) (back func()) {
	t.call = c
	t.turns.mu.Unlock()
	return t.back
}

func (t *turn) back() {
	t.turns.mu.Lock()
	t.call = nil
}

// outsideStore makes every call of a store, and every reading of a body, one
// that happens outside.
type outsideStore struct{ objstore.Store }

func (s outsideStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		c := &call{"list", prefix}
		back := outside(ctx, c)
		defer func() { back() }()
		for obj, err := range s.Store.List(ctx, prefix, after) {
			back()
			back = func() {}
			more := yield(obj, err)
			back = outside(ctx, c)
			if !more {
				return
			}
		}
	}
}

func (s outsideStore) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	c := &call{"get", key}
	back := outside(ctx, c)
	body, obj, err := s.Store.Get(ctx, key, opts)
	back()
	if t, ok := ctx.Value(turnKey{}).(*turn); ok && err == nil {
		body = outsideBody{body, t, c}
	}
	return body, obj, err
}

func (s outsideStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	defer outside(ctx, &call{"put", key})()
	return s.Store.Put(ctx, key, body, size, opts)
}

func (s outsideStore) Delete(ctx context.Context, key string) error {
	defer outside(ctx, &call{"delete", key})()
	return s.Store.Delete(ctx, key)
}

// outsideBody is read and closed outside: to close a connection takes a last
// word to the other side.
type outsideBody struct {
	body io.ReadCloser
	turn *turn
	call *call
}

func (o outsideBody) Read(b []byte) (int, error) {
	defer o.turn.outside(o.call)()
	return o.body.Read(b)
}

func (o outsideBody) Close() error {
	defer o.turn.outside(o.call)()
	return o.body.Close()
}

// nodeFile is an open file of the node's disk, which is read outside.
type nodeFile struct {
	io.ReadCloser
	size int64
}

// openNode opens a file of the node's disk.
func openNode(ctx context.Context, tail *ltxtail.Tail, f ltxtail.File) (nodeFile, error) {
	c := &call{"read", f.Path}
	defer outside(ctx, c)()
	file, err := tail.Open(f)
	if err != nil {
		return nodeFile{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return nodeFile{}, fmt.Errorf("size of %s: %w", f.Path, errors.Join(err, file.Close()))
	}
	open := nodeFile{file, info.Size()}
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		open.ReadCloser = outsideBody{file, t, c}
	}
	return open, nil
}
