package objstore

import (
	"context"
	"io"
	"iter"
	"slices"
	"sync"
)

// Fault is a store that misbehaves as told, for tests of everything that uses
// a store: calls that fail before or after they took effect, bodies that break
// off, listings that lag.
type Fault struct {
	store Store

	mu    sync.Mutex
	rules []*armedRule
	calls map[string]int
}

type armedRule struct {
	Rule
	seen int // matching calls so far
}

// Rule says which calls go wrong and how. Of the calls that match Op and Key,
// the first Skip ones pass, the next Times ones (0: all) are hit: "the third
// PUT" is {Op: OpPut, Skip: 2, Times: 1}. Several rules may hit one call; they
// apply in the order they were added.
type Rule struct {
	// Op is the operation, "" for all.
	Op string
	// Key chooses keys, or for a List the prefix; nil chooses all.
	Key func(key string) bool
	// Skip and Times choose among the matching calls.
	Skip, Times int

	// Wait runs before the call; it may block, observe or race. An error it
	// returns fails the call.
	Wait func(ctx context.Context, op, key string) error
	// Before fails the call before the store sees it.
	Before error
	// After lets the store do the call and then fails it: an answer that was
	// lost. A List yields its objects first.
	After error
	// CutError, when set, ends a Get's body with this error after CutAt bytes.
	CutError error
	CutAt    int64
	// Hide leaves out objects of a List: a listing that lags behind.
	Hide func(Object) bool
}

// NewFault returns a store over s that has no rule yet.
func NewFault(s Store) *Fault {
	return &Fault{store: s, calls: map[string]int{}}
}

// Add adds a rule and returns a function that takes it away again.
func (f *Fault) Add(r Rule) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	armed := &armedRule{Rule: r}
	f.rules = append(f.rules, armed)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(f.rules, func(o *armedRule) bool { return o == armed })
	}
}

// Clear takes all rules away.
func (f *Fault) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Calls returns how often an operation was called, faults included.
func (f *Fault) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// enter counts a call, runs its Wait hooks and returns the rules that hit it;
// an error fails the call before it happens.
func (f *Fault) enter(ctx context.Context, op, key string) ([]Rule, error) {
	hit := f.match(op, key)
	for _, r := range hit {
		if r.Wait != nil {
			if err := r.Wait(ctx, op, key); err != nil {
				return nil, err
			}
		}
		if r.Before != nil {
			return nil, r.Before
		}
	}
	return hit, nil
}

func (f *Fault) match(op, key string) []Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	var hit []Rule
	for _, r := range f.rules {
		if r.Op != "" && r.Op != op || r.Key != nil && !r.Key(key) {
			continue
		}
		r.seen++
		if r.seen > r.Skip && (r.Times == 0 || r.seen <= r.Skip+r.Times) {
			hit = append(hit, r.Rule)
		}
	}
	return hit
}

// lost returns the error of the first rule that loses the answer.
func lost(hit []Rule) error {
	for _, r := range hit {
		if r.After != nil {
			return r.After
		}
	}
	return nil
}

// List implements Store.
func (f *Fault) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		hit, err := f.enter(ctx, OpList, prefix)
		if err != nil {
			yield(Object{}, err)
			return
		}
		hidden := func(obj Object) bool {
			return slices.ContainsFunc(hit, func(r Rule) bool { return r.Hide != nil && r.Hide(obj) })
		}
		for obj, err := range f.store.List(ctx, prefix, after) {
			if err == nil && hidden(obj) {
				continue
			}
			if !yield(obj, err) || err != nil {
				return
			}
		}
		if err := lost(hit); err != nil {
			yield(Object{}, err)
		}
	}
}

// Get implements Store.
func (f *Fault) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	hit, err := f.enter(ctx, OpGet, key)
	if err != nil {
		return nil, Object{}, err
	}
	body, obj, err := f.store.Get(ctx, key, opts)
	if err != nil {
		return nil, obj, err
	}
	if err := lost(hit); err != nil {
		body.Close()
		return nil, Object{}, err
	}
	for _, r := range hit {
		if r.CutError != nil {
			body = &cutBody{ReadCloser: body, left: r.CutAt, err: r.CutError}
		}
	}
	return body, obj, nil
}

// cutBody ends with err after left bytes.
type cutBody struct {
	io.ReadCloser
	left int64
	err  error
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Put implements Store.
func (f *Fault) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	hit, err := f.enter(ctx, OpPut, key)
	if err != nil {
		return Object{}, err
	}
	obj, err := f.store.Put(ctx, key, body, size, opts)
	if err != nil {
		return obj, err
	}
	if err := lost(hit); err != nil {
		return Object{}, err
	}
	return obj, nil
}

// Delete implements Store.
func (f *Fault) Delete(ctx context.Context, key string) error {
	hit, err := f.enter(ctx, OpDelete, key)
	if err != nil {
		return err
	}
	if err := f.store.Delete(ctx, key); err != nil {
		return err
	}
	return lost(hit)
}
