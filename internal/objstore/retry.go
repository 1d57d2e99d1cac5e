package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"
)

// RetryPolicy says how WithRetry waits. Zero fields take the values of
// DefaultRetry, so that tests name only what they change.
type RetryPolicy struct {
	// Attempts is how often a call is made at most, the first one included.
	Attempts int
	// Base is the longest wait before the second attempt; the bound doubles
	// with every attempt up to Cap. The wait is drawn evenly from the upper
	// half of the bound, so that many nodes do not return in step.
	Base, Cap time.Duration
	// Sleep waits for d or until ctx ends, whose error it then returns.
	Sleep func(ctx context.Context, d time.Duration) error
	// Rand returns a number in [0, 1).
	Rand func() float64
	// Observe, when set, learns of each failed attempt that will be repeated.
	Observe func(op string, err error, wait time.Duration)
}

// DefaultRetry gives a store about half a minute to come back. Longer outages
// are the caller's: it knows what to do meanwhile.
func DefaultRetry() RetryPolicy {
	return RetryPolicy{Attempts: 8, Base: 250 * time.Millisecond, Cap: 10 * time.Second, Sleep: sleep, Rand: rand.Float64}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	d := DefaultRetry()
	if p.Attempts <= 0 {
		p.Attempts = d.Attempts
	}
	if p.Base <= 0 {
		p.Base = d.Base
	}
	if p.Cap <= 0 {
		p.Cap = d.Cap
	}
	if p.Sleep == nil {
		p.Sleep = d.Sleep
	}
	if p.Rand == nil {
		p.Rand = d.Rand
	}
	return p
}

// wait is how long to wait after the n-th failed attempt (from 1). What the
// store asked for is obeyed, up to Cap.
func (p RetryPolicy) wait(n int, err error) time.Duration {
	bound := p.Cap
	if shift := n - 1; shift < 32 && p.Base < p.Cap>>shift {
		bound = p.Base << shift
	}
	d := bound/2 + time.Duration(p.Rand()*float64(bound/2))
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) {
		d = max(d, min(asked.RetryAfter(), p.Cap))
	}
	return d
}

// WithRetry repeats calls of s that may pass when repeated. It does not repeat
// what is permanent (ErrNotFound, ErrPrecondition, ErrDenied, ErrKey, ErrBody, what
// the store cannot do, an ended context), nor a conditional Put unless the store said that it did not apply
// it: after a lost answer the object may already be ours, and a second attempt
// would report ErrPrecondition for a write that won. A call that ran out of
// time is made once more.
//
// A List goes on after the last key it yielded. A Get whose body breaks goes
// on where it broke, on the same version of the object or not at all.
func WithRetry(s Store, p RetryPolicy) Store {
	return &retrying{store: s, policy: p.withDefaults()}
}

type retrying struct {
	store  Store
	policy RetryPolicy
}

// Permanent reports whether repeating a call that returned err is useless.
func Permanent(err error) bool {
	for _, target := range []error{ErrNotFound, ErrPrecondition, ErrDenied, ErrKey, ErrBody, ErrTooLarge, errors.ErrUnsupported, context.Canceled} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// slowAttempts is how often a call is made that ran out of time. Each took as
// long as all the attempts at a store that refuses, and others wait for it.
const slowAttempts = 2

// ranOut reports whether an attempt ended because the other side was silent.
func ranOut(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.As(err, &timed) && timed.Timeout()
}

// notApplied reports whether the store said that a write did not happen.
func notApplied(err error) bool {
	var said interface{ NotApplied() bool }
	return errors.As(err, &said) && said.NotApplied()
}

// pause sleeps after the n-th failed attempt when another one is due, and
// returns nil then. Otherwise it returns the error to give to the caller.
func (r *retrying) pause(ctx context.Context, op string, n int, err error) error {
	if Permanent(err) || ctx.Err() != nil {
		return err
	}
	if n >= r.policy.Attempts || n >= slowAttempts && ranOut(err) {
		return fmt.Errorf("after %d attempts: %w", n, err)
	}
	d := r.policy.wait(n, err)
	if r.policy.Observe != nil {
		r.policy.Observe(op, err, d)
	}
	if r.policy.Sleep(ctx, d) != nil {
		return err
	}
	return nil
}

// do runs call until it passes or pause gives up.
func (r *retrying) do(ctx context.Context, op string, call func() error) error {
	for n := 1; ; n++ {
		err := call()
		if err == nil {
			return nil
		}
		if err := r.pause(ctx, op, n, err); err != nil {
			return err
		}
	}
}

// List implements Store. Attempts count anew after every object that arrived.
func (r *retrying) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		last := after // not after itself: a sequence may be ranged over twice
		for n := 1; ; n++ {
			var failed error
			for obj, err := range r.store.List(ctx, prefix, last) {
				if err != nil {
					failed = err
					break
				}
				if !yield(obj, nil) {
					return
				}
				last, n = obj.Key, 1
			}
			if failed == nil {
				return
			}
			if err := r.pause(ctx, OpList, n, failed); err != nil {
				yield(Object{}, err)
				return
			}
		}
	}
}

// Get implements Store.
func (r *retrying) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	var body io.ReadCloser
	var obj Object
	err := r.do(ctx, OpGet, func() (err error) {
		body, obj, err = r.store.Get(ctx, key, opts)
		return err
	})
	if err != nil {
		return nil, obj, err
	}
	from, to := window(opts, obj.Size)
	return &resumingBody{ctx: ctx, retry: r, obj: obj, key: key, body: body, at: from, end: to}, obj, nil
}

// resumingBody reads [at, end) of one version of an object.
type resumingBody struct {
	ctx     context.Context // the Get's: the body's reads belong to that call
	retry   *retrying
	obj     Object
	key     string
	body    io.ReadCloser // nil between a broken body and the next one
	at, end int64
	failed  int // attempts since the last byte
	err     error
}

func (b *resumingBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	for b.at < b.end {
		if b.body == nil {
			if b.err = b.reopen(); b.err != nil {
				return 0, b.err
			}
		}
		n, err := b.body.Read(p)
		if n > 0 {
			b.at += int64(n)
			b.failed = 0
			return n, nil
		}
		if err == nil {
			return 0, nil
		}
		b.body.Close()
		b.body = nil
		b.failed++
		if b.err = b.retry.pause(b.ctx, OpGet, b.failed, noEOF(err)); b.err != nil {
			return 0, b.err
		}
	}
	return 0, io.EOF
}

// reopen gets the rest of the object. An object replaced meanwhile is
// ErrPrecondition: what was read so far belongs to the version that is gone.
func (b *resumingBody) reopen() error {
	opts := GetOptions{Offset: b.at, Length: b.end - b.at, IfMatch: b.obj.ETag}
	return b.retry.do(b.ctx, OpGet, func() (err error) {
		b.body, _, err = b.retry.store.Get(b.ctx, b.key, opts)
		return err
	})
}

func (b *resumingBody) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}

// Put implements Store.
func (r *retrying) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	conditional := opts.IfAbsent || opts.IfMatch != ""
	for n := 1; ; n++ {
		obj, err := r.store.Put(ctx, key, body, size, opts)
		if err == nil || conditional && !notApplied(err) {
			return obj, err
		}
		if err := r.pause(ctx, OpPut, n, err); err != nil {
			return obj, err
		}
	}
}

// Delete implements Store.
func (r *retrying) Delete(ctx context.Context, key string) error {
	return r.do(ctx, OpDelete, func() error { return r.store.Delete(ctx, key) })
}
