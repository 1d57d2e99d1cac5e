package exporter_test

import (
	"fmt"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
	"celldexport/sinks"
	"celldexport/sinks/bucket"
)

// apart has a node write its export to a bucket of its own.
func apart(t *testing.T) (w *world, a *host, export *objstore.Fault) {
	w = newWorld(t, celldsim.V06)
	a = w.host("node-a")
	a.settings.Export.Bucket = "s3://export"
	export = objstore.NewFault(objstore.NewMemory())
	a.rig = func(o *exporter.Options) { o.Export = export }
	return w, a, export
}

// keysBelow counts a store's keys below a prefix.
func keysBelow(t *testing.T, store objstore.Store, prefix string) (n int) {
	t.Helper()
	for _, err := range store.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// With an export bucket of its own the fleet's gets the ledger and the node's
// object, and not one record; the export bucket gets records alone.
func TestExportBucketOfItsOwn(t *testing.T) {
	t.Parallel()
	w, a, export := apart(t)
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	a.once()
	w.must(a.node.Evict(t.Context(), c.Scope(), true))
	a.once()
	c = a.activate("one")
	w.write(c, `DELETE FROM items WHERE sku = 'a'`)
	a.once()
	got, err := consumer.Load(t.Context(), export)
	w.must(err)
	sound(w, "bucket", got, c)
	if n := keysBelow(t, w.store, bucket.Prefix); n != 0 {
		t.Errorf("%d objects of the export are in the fleet's bucket", n)
	}
	if ledgers, all, records := keysBelow(t, w.store, "exportd/"), keysBelow(t, export, ""), keysBelow(t, export, bucket.Prefix); ledgers == 0 || records == 0 || all != records {
		t.Errorf("%d objects of ours in the fleet's bucket; of %d in the export bucket %d are of the export", ledgers, all, records)
	}
}

// A cell that always has more to export than the spool takes does not keep
// another from its turn: the other's one transaction goes out long before the
// end of the first's.
func TestBusyStreamLeavesRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.settings.Export.SpoolBytes = 3 << 20
	// Its one sink asks again soon, so that nothing waits for that.
	other := newOther(t, "other")
	a.settings.Export.Sinks = nil
	a.rig = func(o *exporter.Options) { o.More = []sinks.Sink{other} }
	busy, quiet := a.activate("busy"), a.activate("quiet")
	w.write(busy, createBlobs)
	w.write(quiet, createItems)
	a.run()
	a.sync()
	a.settled()
	up := other.down()
	const units = 150
	for range units {
		w.write(busy, replaceBlob)
	}
	w.until("reading stops", func() bool { return a.e.Status().Streams[exporter.StateFull] > 0 })
	w.write(quiet, `INSERT INTO items VALUES('mine',1)`)
	up()
	a.sync()
	a.settled()
	a.halt()
	got := other.equal(w, busy, quiet)
	chained(t, "other", got.Records)
	after, seen := 0, false
	for _, r := range got.Records {
		rows, ok := r.Body.(*envelope.Rows)
		if !ok {
			continue
		}
		seen = seen || r.Stream.Cell == quiet.Scope() && strings.Contains(fmt.Sprint(rows.Changes), "mine")
		if seen && r.Stream.Cell == busy.Scope() {
			after++
		}
	}
	if !seen || after < units/3 {
		t.Errorf("the quiet cell's row came (%v) with %d of the busy cell's %d transactions behind it", seen, after, units)
	}
}
