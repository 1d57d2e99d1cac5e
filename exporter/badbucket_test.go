package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// status waits until the running exporter says something.
func (h *host) status(what string, says func(exporter.Summary) bool) exporter.Summary {
	h.w.t.Helper()
	var last exporter.Summary
	h.w.until("the exporter of "+h.settings.Node+" says that "+what, func() bool {
		last = h.e.Status()
		return says(last)
	})
	return last
}

// A bucket that refuses, is gone, throttles, is slow or does not answer: the
// state says so, nothing wrong is exported, and everything is once it is back.
func TestBucketFails(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _, _ string) error {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		return ctx.Err()
	}
	for _, tt := range []struct {
		name string
		rule objstore.Rule
		says string
	}{
		{"403", objstore.Rule{Before: fmt.Errorf("get: 403 AccessDenied: %w", objstore.ErrDenied)}, "403 AccessDenied"},
		{"404", objstore.Rule{Before: fmt.Errorf("get: 404 NoSuchBucket: %w", objstore.ErrDenied)}, "404 NoSuchBucket"},
		{"503", objstore.Rule{Before: errors.New("503 SlowDown")}, "503 SlowDown"},
		{"reset after the answer", objstore.Rule{After: errors.New("connection reset by peer")}, "connection reset"},
		{"no listing", objstore.Rule{Op: objstore.OpList, Before: errors.New("503 on LIST")}, ""},
		{"no put", objstore.Rule{Op: objstore.OpPut, Before: errors.New("503 on PUT")}, ""},
		{"slow", objstore.Rule{Wait: slow}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			p.fault.Add(tt.rule)
			p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
			p.write(p.other, `INSERT INTO items VALUES('c',3)`)
			if tt.says != "" {
				p.a.status(tt.says, func(s exporter.Summary) bool { return strings.Contains(s.RoundError, tt.says) })
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			if s := p.a.e.Status(); s.DeliveryFailed {
				t.Errorf("a bucket's failure counts as one of the state directory: %s", s.Failure)
			}
			p.fault.Clear()
			p.recovered()
		})
	}
}

// A bucket that does not answer at all holds up its caller until the caller
// gives up, and nothing else: the exporter can still be asked and stopped.
func TestBucketHangs(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	asked, back := make(chan struct{}, 1), make(chan struct{})
	p.fault.Add(objstore.Rule{Wait: func(ctx context.Context, _, _ string) error {
		select {
		case asked <- struct{}{}:
		default: // the test looks for the first alone
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-back:
			return errors.New("the connection was closed")
		}
	}})
	p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
	await(t, "a request", asked)
	if s := p.a.e.Status(); s.DeliveryFailed {
		t.Errorf("a silent bucket counts as a failing state directory: %s", s.Failure)
	}
	p.a.stop()
	close(back)
	p.fault.Clear()
	p.a.halt()
	p.a.run()
	p.recovered()
}

// A document that is no JSON stops what depends on it, by name, until it is
// mended.
func TestDocumentsThatAreNotJSON(t *testing.T) {
	t.Parallel()
	t.Run("own.json", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(celld.OwnKey(p.bad.Scope()), "{oops")
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.trouble(celld.OwnKey(p.bad.Scope()))
		mend()
		p.recovered()
	})
	t.Run("own.json of another node at our epoch", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(celld.OwnKey(p.bad.Scope()), string(celld.Own{Node: "node-z", Epoch: p.bad.Epoch()}.Append(nil)))
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.trouble("own.json", "node-z")
		mend()
		p.recovered()
	})
	t.Run("own.json missing", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(celld.OwnKey(p.bad.Scope()), "")
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.trouble("own.json", "missing")
		mend()
		p.recovered()
	})
	t.Run("ledger", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(ledger.Key(p.bad.Scope(), ""), "[]")
		p.write(p.bad, `CREATE TABLE more(x)`)
		p.trouble(ledger.Key(p.bad.Scope(), ""))
		mend()
		p.recovered()
	})
	t.Run("ledger missing", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(ledger.Key(p.bad.Scope(), ""), "")
		p.must(p.a.node.Evict(t.Context(), p.bad.Scope(), true))
		p.bad = p.a.activate("bad")
		p.must(p.bad.Upload(t.Context()))
		p.trouble(ledger.Key(p.bad.Scope(), ""))
		mend()
		p.recovered()
	})
	t.Run("control.json", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(celld.ControlKey, "<html>")
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.a.status("control.json is broken", func(s exporter.Summary) bool { return strings.Contains(s.RoundError, celld.ControlKey) })
		mend()
		p.recovered()
	})
	t.Run("control.json of another backend", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(celld.ControlKey, `{"backend":"dynamodb","fleet":"f","format":1,"region":"r","table":"t"}`)
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.a.status("control.json names another backend", func(s exporter.Summary) bool { return strings.Contains(s.RoundError, "dynamodb") })
		mend()
		p.recovered()
	})
	t.Run("node object", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		mend := p.spoil(ledger.NodeKey("node-a"), "null")
		p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
		p.a.status("the node's object is broken", func(s exporter.Summary) bool { return strings.Contains(s.RoundError, ledger.NodeKey("node-a")) })
		mend()
		p.recovered()
	})
}

// spoil replaces an object, or removes it for "". It returns how to put back
// what was there.
func (p *pair) spoil(key, text string) (mend func()) {
	p.t.Helper()
	before, _, err := objstore.ReadAll(p.t.Context(), p.store, key, 1<<20)
	had := err == nil
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		p.t.Fatal(err)
	}
	put := func(keep bool, b []byte) {
		p.t.Helper()
		if !keep {
			p.must(p.store.Delete(p.t.Context(), key))
			return
		}
		_, err := objstore.PutBytes(p.t.Context(), p.store, key, b, objstore.PutOptions{})
		p.must(err)
	}
	put(text != "", []byte(text))
	return func() { put(had, before) }
}

// A start needs the node's object and says which one it cannot read.
func TestStartWithoutNodeObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.host("node-a")
	_, err := objstore.PutBytes(t.Context(), w.store, ledger.NodeKey("node-a"), []byte("{"), objstore.PutOptions{})
	w.must(err)
	if _, err := a.open(); err == nil || !strings.Contains(err.Error(), ledger.NodeKey("node-a")) {
		t.Errorf("a start with a broken node object: %v", err)
	}
	if _, err := os.Stat(filepath.Join(a.settings.State, "state.db")); err != nil {
		t.Errorf("the state directory: %v", err)
	}
}
