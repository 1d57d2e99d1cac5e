package celldsim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"celldexport/internal/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestExampleNodeRestores restores the checked-in example, whose files another
// program captured, from a file store, and finds its cell by our own rule for
// ids.
func TestExampleNodeRestores(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", "node", "bucket"))))
	store, err := objstore.NewFile(dir)
	must(t, err)
	f := newFleet(t, Config{})
	f.cfg.Bucket = store
	got := restoreDump(t, f, f.CellID("Shelf", "aisle 9"))
	rowid := []string{"_rowid_"}
	key := func(v Value) []Value { return []Value{v} }
	want := map[string]DumpedTable{
		"bins": {
			Columns: []string{"id", "label", "weight", "photo", "side"}, KeyColumns: []string{"id"},
			Rows: []DumpedRow{
				{key(integer(1)), []Value{integer(1), text("nuts"), real64(2.25), {}, text("left")}},
				{key(integer(4)), []Value{integer(4), text("screws"), real64(1), {}, text("left")}},
				{key(integer(5)), []Value{integer(5), text("hooks"), {}, {}, text("left")}},
				{key(integer(7)), []Value{integer(7), text("bolts"), real64(0.5), blob("\x00\xff"), text("right")}},
			},
		},
		"journal": {
			Columns: []string{"message"}, KeyColumns: rowid,
			Rows: []DumpedRow{
				{key(integer(1)), []Value{text("opened")}}, {key(integer(2)), []Value{integer(42)}}, {key(integer(3)), []Value{{}}},
				{key(integer(4)), []Value{real64(1e300)}}, {key(integer(5)), []Value{text("renamed")}},
			},
		},
		"kv": {
			Columns: []string{"key", "value"}, KeyColumns: []string{"key"},
			Rows: []DumpedRow{
				{key(text("count")), []Value{text("count"), blob("\xff\x0fT")}},
				{key(text("nested")), []Value{text("nested"), blob("\xff\x0fo\"\x01aA\x02I\x02T$\x00\x02{\x01")}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
