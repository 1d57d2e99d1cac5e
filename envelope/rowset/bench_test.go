package rowset

import (
	"fmt"
	"path/filepath"
	"testing"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
)

const benchRows = 20000

// benchDatabase has one table of eight mixed columns, about 170 bytes a row.
func benchDatabase(b *testing.B, create string) *pages {
	b.Helper()
	path := filepath.Join(b.TempDir(), "cell.db")
	openDatabase(b, path).exec("PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF", create,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
			INSERT INTO t SELECT i, 'customer-' || i, i * 1.25, i %% 7, 'a line of text that says nothing, ' || i,
				CASE i %% 3 WHEN 0 THEN NULL ELSE i * 1000003 END, CAST('blob' || i AS BLOB), 'open' FROM n`, benchRows))
	p := newPages(b, path)
	change := p.change()
	if err := change.Accept(); err != nil {
		b.Fatal(err)
	}
	return p
}

// rowsOnly is a unit in which every row of a state was inserted.
type rowsOnly struct{ Image }

func (r rowsOnly) Before() *schema.Schema                     { return r.After() }
func (r rowsOnly) Touched(string) bool                        { return true }
func (r rowsOnly) Rows(name string, v diffpage.Visitor) error { return r.Scan(name, v) }
func discard(*envelope.Encoded) error                         { return nil }
func benchPlan(b *testing.B, img Image, memory int64) *Plan {
	b.Helper()
	p, err := NewPlan(img.After(), img.After(), nil, mark(4, 1), mark(4, 0), Options{Scope: "s", MaxRecordBytes: 1 << 20, MemoryBytes: memory, TempDir: b.TempDir(), Scratch: new(Scratch)})
	if err != nil {
		b.Fatal(err)
	}
	return p.Next()
}

func benchEncode(b *testing.B, src Source, memory int64) {
	b.Helper()
	plan := benchPlan(b, src, memory)
	b.ReportAllocs()
	for b.Loop() {
		stats, err := plan.Encode(testEnvelope(1), src, nil, discard)
		if err != nil || stats.Inserts != benchRows {
			b.Fatal(stats, err)
		}
	}
	b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkRowsFromMemory measures rows that are decoded already: what this
// package and the fragments cost. Allocations are per unit of 20,000 rows.
func BenchmarkRowsFromMemory(b *testing.B) {
	d := newDatabase(b, benchRowid, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 20000)
		INSERT INTO t SELECT i, 'customer-' || i, i * 1.25, i % 7, 'a line of text that says nothing, ' || i,
			CASE i % 3 WHEN 0 THEN NULL ELSE i * 1000003 END, CAST('blob' || i AS BLOB), 'open' FROM n`)
	benchEncode(b, rowsOnly{ImageOf(base{d.capture()})}, 64<<20)
}

const (
	benchRowid = `CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, price REAL, kind INT, note TEXT, ref INT, raw BLOB, state TEXT)`
	benchKeyed = `CREATE TABLE t(id INT, name TEXT PRIMARY KEY, price REAL, kind INT, note TEXT, ref INT, raw BLOB, state TEXT)`
)

// BenchmarkRowsFromPages measures the way from page bytes to fragments.
func BenchmarkRowsFromPages(b *testing.B) {
	for _, bb := range []struct {
		name, create string
		memory       int64
	}{
		{"rowid", benchRowid, 64 << 20},
		{"rowid-spilled", benchRowid, 1 << 20},
		{"keyed", benchKeyed, 64 << 20},
		{"keyed-spilled", benchKeyed, 1 << 20},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := benchDatabase(b, bb.create)
			benchEncode(b, rowsOnly{ImageOf(p.base)}, bb.memory)
		})
	}
}

// BenchmarkOneRowUnit measures what a unit costs beside its rows: one changed
// row in a stream of a hundred tables.
func BenchmarkOneRowUnit(b *testing.B) {
	d := newDatabase(b)
	for i := range 100 {
		d.exec(fmt.Sprintf(`CREATE TABLE t%d(id INTEGER PRIMARY KEY, v)`, i))
	}
	before := d.capture()
	d.exec(`INSERT INTO t7 VALUES (1, 'x')`)
	src := &fake{before: before, after: d.capture(), untouched: map[string]bool{}}
	for i := range 100 {
		src.untouched[fmt.Sprint("t", i)] = i != 7
	}
	first, err := NewPlan(src.After(), src.Before(), nil, mark(4, 1), mark(4, 0), planOptions)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("planned", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := NewPlan(src.After(), src.Before(), first.Ledger(), mark(4, 2), mark(4, 1), planOptions)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Encode(testEnvelope(2), src, nil, discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("next", func(b *testing.B) {
		b.ReportAllocs()
		p := first.Next()
		for b.Loop() {
			if _, err := p.Encode(testEnvelope(2), src, nil, discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}
