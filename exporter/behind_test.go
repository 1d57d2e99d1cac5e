package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
	"celldexport/sinks"
)

// An old copy of the state directory whose node object was put back as well:
// the objects of the export bucket still tell that it is behind.
func TestStateBehindItsObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	copied := filepath.Join(t.TempDir(), "copy")
	w.must(os.CopyFS(copied, os.DirFS(a.settings.State)))
	node, _, err := objstore.ReadAll(t.Context(), w.store, ledger.NodeKey("node-a"), 1<<16)
	w.must(err)
	w.write(c, `INSERT INTO items VALUES('c',3)`)
	a.once()
	w.must(os.RemoveAll(a.settings.State))
	w.must(os.CopyFS(a.settings.State, os.DirFS(copied)))
	_, err = objstore.PutBytes(t.Context(), w.store, ledger.NodeKey("node-a"), node, objstore.PutOptions{})
	w.must(err)
	w.write(c, `DELETE FROM items WHERE sku = 'a'`)
	e, err := a.open()
	w.must(err)
	_, err = e.Once(t.Context(), exportTime)
	w.must(err)
	if st := e.Status(); len(st.Uncertified) != 1 {
		t.Errorf("the epoch goes on as if nothing had happened: uncertified %v", st.Uncertified)
	}
	w.must(e.Close())
	w.same(c)
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.once()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	a.once()
	w.equal(c)
}

// A copy that was made while the exporter ran, put back after it had gone on:
// the start is the same and no sink has objects, but the token is an old one.
func TestCopyOfRunningState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	other := newOther(t, "other")
	a.settings.Export.Sinks = nil
	var ahead atomic.Int64
	start := func() {
		a.rig = func(o *exporter.Options) {
			o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.More = []sinks.Sink{otherOver(t, "other", other.store)}
		}
		a.run()
	}
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	start()
	a.sync()
	a.settled()
	_, _, err := c.Compact(t.Context(), 100)
	w.must(err)
	copied := filepath.Join(t.TempDir(), "copy")
	w.must(os.CopyFS(copied, os.DirFS(a.settings.State)))
	ahead.Add(int64(time.Minute))
	w.write(c, `INSERT INTO items VALUES('b2',3)`, `INSERT INTO items VALUES('c',3)`, `DELETE FROM items WHERE sku = 'a'`)
	a.sync()
	a.settled()
	a.halt()
	// The three transactions come again as one.
	first, last, err := c.Compact(t.Context(), 100)
	w.must(err)
	for txid := first; txid <= last; txid++ {
		w.must(w.store.Delete(t.Context(), celld.LTXKey(c.Scope(), 1, 0, txid, txid)))
		w.must(os.Remove(filepath.Join(c.LTXDir(), fmt.Sprintf("%016x-%016x.ltx", txid, txid))))
	}
	w.must(os.RemoveAll(a.settings.State))
	w.must(os.CopyFS(a.settings.State, os.DirFS(copied)))
	w.write(c, `INSERT INTO items VALUES('d',4)`)
	start()
	a.sync()
	a.settled()
	if st := a.e.Status(); len(st.Uncertified) != 1 {
		t.Errorf("the epoch goes on as if nothing had happened: uncertified %v", st.Uncertified)
	}
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.sync()
	c = a.activate("one")
	w.write(c, `INSERT INTO items VALUES('e',5)`)
	a.sync()
	a.settled()
	a.halt()
	other.equal(w, c)
}
