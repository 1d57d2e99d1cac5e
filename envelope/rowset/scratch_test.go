package rowset

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"
)

// A unit that begins with memory that another left gives the records it gives
// with new memory, and the next small unit finds no more memory held than the
// bound, and no file, whatever the unit before was like.
func TestScratchHoldsNothingBack(t *testing.T) {
	d := newDatabase(t, "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)", "CREATE TABLE k(id TEXT PRIMARY KEY, v TEXT)")
	units := []*fake{
		unitOf(d, "INSERT INTO t VALUES (1, 'small')", "INSERT INTO k VALUES ('a', 'small')"),
		unitOf(d, "INSERT INTO t VALUES (2, hex(zeroblob(20000)))", "INSERT INTO k VALUES ('b', hex(zeroblob(20000)))"),
		unitOf(d, insertMany("t", "i + 10"), insertMany("k", "'key ' || i")),
		unitOf(d, "UPDATE k SET id = id || '!' WHERE id > 'key 5'"),
		unitOf(d, "DELETE FROM t WHERE id = 1", "DELETE FROM k WHERE id = 'a'"),
	}
	const memory = 4 << 10
	opt := Options{Scope: "s", MaxRecordBytes: 1 << 20, MemoryBytes: memory, TempDir: t.TempDir()}
	shared := opt
	shared.Scratch = new(Scratch)
	for i, src := range units {
		want, got := encoded(t, opt, src), encoded(t, shared, src)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("unit %d with used memory:\n%s\nwith new memory:\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if files, err := os.ReadDir(opt.TempDir); err != nil || len(files) > 0 {
			t.Errorf("after unit %d files are left: %v, %v", i, files, err)
		}
		s := shared.Scratch
		if held := cap(s.sort.arena) + cap(s.enc.line) + cap(s.enc.key) + cap(s.enc.text); held > 2*memory+memory {
			t.Errorf("after unit %d the scratch holds %d bytes, of %d", i, held, memory)
		}
	}
}

func insertMany(table, id string) string {
	return fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 500) INSERT INTO %s SELECT %s, 'row ' || i FROM n", table, id)
}

func unitOf(d *database, statements ...string) *fake {
	before := d.capture()
	d.exec(statements...)
	return &fake{before: before, after: d.capture()}
}

func encoded(t *testing.T, opt Options, src Source) (lines []string) {
	t.Helper()
	p, err := NewPlan(src.After(), src.Before(), nil, mark(4, 1), mark(4, 0), opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Next().Encode(testEnvelope(1), src, nil, func(e *envelope.Encoded) error {
		lines = append(lines, string(e.AppendJSON(nil)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
