package exporter_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// objects are the keys below the export's prefix.
func (w *world) objects() []string {
	w.t.Helper()
	var keys []string
	for obj, err := range w.store.List(w.t.Context(), bucket.Prefix, "") {
		w.must(err)
		keys = append(keys, obj.Key)
	}
	return keys
}

// A node deletes its own old objects, but none with records of an epoch that
// is still open here.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.Retention = 2
	var ahead atomic.Int64
	a.rig = func(o *exporter.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Sweep = 20 * time.Millisecond
	}
	foreign := []string{
		bucket.Name{Node: "node-b", Micros: 1, Rand: 1}.Key(), bucket.Name{Node: "node-a2", Micros: 1, Rand: 1}.Key(),
		bucket.Prefix + "node-a/1970/01/01/00/1-00000001.parquet.tmp", bucket.Prefix + "node-a/README",
	}
	ours := func() []string {
		return slices.DeleteFunc(w.objects(), func(key string) bool { return slices.Contains(foreign, key) })
	}
	idle := a.activate("idle")
	w.write(idle, createItems, insertTwo)
	a.run()
	a.sync()
	w.until("the idle cell is certified", func() bool { return len(w.consumer().Certified(consumer.SourceOf(idle))) == 0 })
	early := len(ours())
	for _, key := range foreign { // no objects that the consumer knows
		_, err := objstore.PutBytes(t.Context(), w.store, key, []byte("not ours"), objstore.PutOptions{})
		w.must(err)
	}
	busy := a.activate("busy")
	for range 4 {
		n := len(ours())
		w.write(busy, createItems, insertTwo, `DROP TABLE items`)
		a.sync()
		w.until("there is another object", func() bool { return len(ours()) > n })
	}
	w.must(a.node.Evict(t.Context(), busy.Scope(), true))
	a.sync()
	a.halt()
	before := ours()

	a.run()
	ahead.Store(int64(47 * time.Hour))
	time.Sleep(200 * time.Millisecond)
	if got := ours(); len(got) < len(before) {
		t.Fatalf("%d of %d objects are left before their time", len(got), len(before))
	}
	ahead.Store(int64(49 * time.Hour))
	w.until("the busy cell's objects are deleted", func() bool { return len(ours()) <= early })
	a.halt()
	w.unlistable(foreign, func() { w.equal(idle) })
	if got := ours(); len(got) == 0 || got[0] != before[0] {
		t.Errorf("the first object of an open epoch is gone: %v", got)
	}

	// The close leaves a record at most; what is old then is of no open epoch.
	w.must(a.node.Evict(t.Context(), idle.Scope(), true))
	a.run()
	a.sync()
	ahead.Store(int64(200 * time.Hour))
	w.until("nothing is left", func() bool { return len(ours()) == 0 })
	a.halt()
	for _, key := range foreign {
		if !slices.Contains(w.objects(), key) {
			t.Errorf("%s is not ours and gone", key)
		}
	}
}

// unlistable takes objects that are no Parquet files out of the way of a
// consumer.
func (w *world) unlistable(keys []string, do func()) {
	w.t.Helper()
	var bodies [][]byte
	for _, key := range keys {
		b, _, err := objstore.ReadAll(w.t.Context(), w.store, key, 1<<20)
		w.must(err)
		w.must(w.store.Delete(w.t.Context(), key))
		bodies = append(bodies, b)
	}
	do()
	for i, key := range keys {
		_, err := objstore.PutBytes(w.t.Context(), w.store, key, bodies[i], objstore.PutOptions{})
		w.must(err)
	}
}

// An object store that refuses to delete costs nothing but the space: the
// export goes on and the log says it.
func TestRetentionWithoutPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.Retention = 1
	var ahead atomic.Int64
	a.rig = func(o *exporter.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Sweep = 20 * time.Millisecond
	}
	var denied atomic.Int64
	w.fault.Add(objstore.Rule{Op: objstore.OpDelete, Wait: func(context.Context, string, string) error {
		denied.Add(1)
		return objstore.ErrDenied
	}})
	c := a.activate("one")
	w.write(c, createItems)
	a.run()
	a.sync()
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.sync()
	a.halt()
	n := len(w.objects())
	ahead.Store(int64(49 * time.Hour))
	a.run()
	w.until("a deletion was refused", func() bool { return denied.Load() > 2 })
	c = a.activate("one")
	w.write(c, insertTwo)
	a.sync()
	a.halt()
	if got := len(w.objects()); got <= n {
		t.Errorf("%d objects, want more than the %d of before", got, n)
	}
	w.equal(c)
}
