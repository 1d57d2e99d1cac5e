package diffpage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"celldexport/diffpage/schema"
)

// foreignDatabases are databases made by programs nobody here wrote: those in
// and below EXPORTD_CORPUS (test/corpus/fetch gets them) and those of Debian
// packages that are installed.
func foreignDatabases(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/usr/share/proj/*.db", "/usr/share/ibus-table/tables/*.db", "/usr/share/qgis/resources/*.db", "/usr/lib/R/site-library/RSQLite/db/*.sqlite"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	if dir := os.Getenv("EXPORTD_CORPUS"); dir != "" {
		for _, pattern := range []string{"*.db", "*.sqlite"} {
			for _, depth := range []string{"", "*"} {
				names, err := filepath.Glob(filepath.Join(dir, depth, pattern))
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, names...)
			}
		}
		if len(found) == 0 {
			t.Fatalf("no database in EXPORTD_CORPUS %s", dir)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestForeignDatabases opens and maps databases of other programs, reads every
// row as SELECT does, and follows random updates of them.
func TestForeignDatabases(t *testing.T) {
	names := foreignDatabases(t)
	if len(names) == 0 {
		t.Skip("no databases of Debian packages are installed and EXPORTD_CORPUS names none (test/corpus/fetch gets them)")
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			image, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			src := newSource(t)
			src.reopen(image)
			src.patient = true
			f := newFollower(t, src)
			f.patient = true
			f.step()
			seed := rand.Uint64N(1 << 32)
			rnd := rand.New(rand.NewPCG(seed, 4))
			rows := 0
			for range 6 {
				for range 20 {
					src.try(foreignUpdate(rnd, f.base.Schema()))
				}
				for _, events := range f.step() {
					rows += len(events)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("page size %d, %d pages, %d tables, %d rows, %d of them changed", f.sh.PageSize(), f.sh.Commit(), len(f.base.Schema().Tables), f.events-rows, rows)
			if f.events != f.changes || rows == 0 {
				t.Errorf("%d events for %d changes, %d by the updates", f.events, f.changes, rows)
			}
		})
	}
}

// foreignUpdate is a statement about some table.
func foreignUpdate(rnd *rand.Rand, sc *schema.Schema) string {
	var tables []*schema.Table
	for _, t := range sc.Tables {
		if t.Kind == schema.Ordinary && t.Unreadable == "" && !strings.HasPrefix(t.Name, "sqlite_") {
			tables = append(tables, t)
		}
	}
	t := tables[rnd.IntN(len(tables))]
	name, column := quoteName(t.Name), quoteName(t.Columns[rnd.IntN(len(t.Columns))].Name)
	some := fmt.Sprintf(" WHERE %s IN (SELECT %s FROM %s LIMIT %d OFFSET %d)", column, column, name, 1+rnd.IntN(5), rnd.IntN(200))
	switch rnd.IntN(4) {
	case 0:
		return "DELETE FROM " + name + some
	case 1:
		return "UPDATE OR REPLACE " + name + " SET " + column + "=" + column + "||'x'" + some
	case 2:
		return "INSERT OR REPLACE INTO " + name + " SELECT * FROM " + name + some
	}
	return "UPDATE OR IGNORE " + name + " SET " + column + "=" + fmt.Sprint(rnd.IntN(1000)) + some
}
