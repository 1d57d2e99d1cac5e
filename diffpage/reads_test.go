package diffpage

import (
	"os"
	"path/filepath"
	"testing"

	"celldexport/diffpage/shadow"
)

// readCounter counts what is read of a shadow.
type readCounter struct {
	*os.File
	bytes, calls int
}

func (f *readCounter) ReadAt(p []byte, off int64) (int, error) {
	f.bytes, f.calls = f.bytes+len(p), f.calls+1
	return f.File.ReadAt(p, off)
}

// TestOldPagesAreReadOnce: of a unit that frees nothing, every old page of a
// table is read once, neighbours together, and no page of an index at all,
// with much less memory than the pages take.
func TestOldPagesAreReadOnce(t *testing.T) {
	const fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20000) INSERT INTO "
	src := newSource(t, "PRAGMA page_size=4096")
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, text TEXT)", "CREATE INDEX i ON t(n)", fill+"t SELECT i, i, hex(randomblob(40)) FROM n",
		// With most of the database in the unit, everything would be compared.
		"CREATE TABLE more(text TEXT)", fill+"more SELECT hex(randomblob(80)) FROM n")
	src.unit()
	path := filepath.Join(t.TempDir(), "shadow.db")
	if err := os.WriteFile(path, src.last, 0o600); err != nil {
		t.Fatal(err)
	}
	src.exec("UPDATE t SET n = n + 1 WHERE id % 50 = 0")
	images, commit := src.unit()

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	counted := &readCounter{File: file}
	sh, err := shadow.New(counted, path, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	base, err := NewBase(sh, WithMemory(128<<10))
	if err != nil {
		t.Fatal(err)
	}
	owned := 0
	for i := range images.Len() {
		if base.owners.of(images.Pgno(i)).role() != roleNone {
			owned++
		}
	}
	counted.bytes, counted.calls = 0, 0
	c, err := base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rows := 0
	if err := c.Rows("t", func(Op, Row, Row) error { rows++; return nil }); err != nil || rows != 400 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	if owned < 350 || images.Len() < owned+50 {
		t.Fatalf("%d of %d pages are the table's: the unit is not what it should be", owned, images.Len())
	}
	if counted.bytes != owned*4096 {
		t.Errorf("%d bytes read of %d changed pages of the table", counted.bytes, owned)
	}
	if counted.calls > owned/3 {
		t.Errorf("%d reads of %d pages, most of which lie side by side", counted.calls, owned)
	}
}
