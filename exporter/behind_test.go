package exporter_test

import (
	"os"
	"path/filepath"
	"testing"

	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// An old copy of the state directory whose node object was put back as well:
// the objects of the export bucket still tell that it is behind.
func TestStateBehindItsObjects(t *testing.T) {
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
