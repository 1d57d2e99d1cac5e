package schema

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// wideTables makes n rows of tables with 16 columns.
func wideTables(n int) []Entry {
	sql := make([]string, n)
	for i := range sql {
		var b strings.Builder
		fmt.Fprintf(&b, "CREATE TABLE t%d(id INTEGER PRIMARY KEY", i)
		for c := range 15 {
			fmt.Fprintf(&b, ", column_%d TEXT NOT NULL", c)
		}
		sql[i] = b.String() + ")"
	}
	return tableRows(UTF8, sql...)
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestMigration: a database that gets one more table a unit costs that table,
// in memory and in reading.
func TestMigration(t *testing.T) {
	const tables, steps = 200, 100
	var c Cache
	all := wideTables(tables + steps)
	was := heap()
	var last *Schema
	for n := range steps + 1 {
		s, err := c.Load(UTF8, all[:tables+n])
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && &s.Tables[n].Columns[0] != &last.Tables[n].Columns[0] {
			t.Fatalf("with %d tables, table %d was read again", tables+n, n)
		}
		last = s
	}
	last = nil
	held := heap() - was
	if len(c.tables) != tables+steps || held > 4<<20 {
		t.Errorf("%d tables are remembered in %d bytes", len(c.tables), held)
	}
	if held > c.bytes*5/4 || c.bytes > held*5/4 {
		t.Errorf("%d bytes are held, estimated as %d", held, c.bytes)
	}
	runtime.KeepAlive(&c)
}

// longTables makes n rows of tables with long texts, of some 64 KiB each, of
// which SQLite reads the beginning: a NUL ends it.
func longTables(first, n int) (entries []Entry) {
	behind := strings.Repeat("long ", 13<<10)
	for i := first; i < first+n; i++ {
		name := fmt.Appendf(nil, "t%d", i)
		entries = append(entries, Entry{Type: "table", Name: name, Table: name, Root: 9, SQL: fmt.Appendf(nil, "CREATE TABLE t%d(a)\x00%s", i, behind)})
	}
	return entries
}

// TestCacheBytes: what was not used for longest makes room, and a schema
// larger than the cache does not keep itself out.
func TestCacheBytes(t *testing.T) {
	var c Cache
	load := func(entries []Entry) *Schema {
		t.Helper()
		s, err := c.Load(UTF8, entries)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for el := c.used.Front(); el != nil; el = el.Next() {
			sum += el.Value.(*remembered).bytes
		}
		if sum != c.bytes || len(c.tables) != c.used.Len() {
			t.Fatalf("%d bytes counted, %d remembered; %d tables and %d in their order", c.bytes, sum, len(c.tables), c.used.Len())
		}
		return s
	}
	hot := tableRows(UTF8, "CREATE TABLE t0(a)")
	first := load(hot).Tables[0]
	was := heap()
	for i := range 20 {
		load(longTables(20*i, 20))
		if &load(hot).Tables[0].Columns[0] != &first.Columns[0] {
			t.Fatal("a table in use was forgotten")
		}
		if c.bytes > cacheBytes {
			t.Fatalf("%d bytes", c.bytes)
		}
	}
	if c.bytes < cacheBytes*3/4 {
		t.Errorf("no more than %d bytes are remembered", c.bytes)
	}
	if held := heap() - was; held > cacheBytes*5/4 {
		t.Errorf("%d bytes are held", held)
	}
	large := longTables(1000, 300)
	s := load(large)
	if again := load(large); &again.Tables[0].Columns[0] != &s.Tables[0].Columns[0] || c.used.Len() != len(large) {
		t.Errorf("%d tables remembered of a schema that has %d", c.used.Len(), len(large))
	}
	load(hot)
	if c.bytes > cacheBytes {
		t.Errorf("%d bytes remain of a schema not in use", c.bytes)
	}
}

func BenchmarkLoad(b *testing.B) {
	entries := tableRows(UTF8, "CREATE TABLE t0(a INTEGER PRIMARY KEY, b TEXT, c REAL)", "CREATE TABLE t1(k PRIMARY KEY, v DEFAULT 5) WITHOUT ROWID")
	load := func(b *testing.B, c *Cache, entries []Entry) {
		if _, err := c.Load(UTF8, entries); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			load(b, new(Cache), entries)
		}
	})
	b.Run("remembered", func(b *testing.B) {
		var c Cache
		for b.Loop() {
			load(b, &c, entries)
		}
	})
	wide := wideTables(1000)
	b.Run("read/tables=1000", func(b *testing.B) {
		for b.Loop() {
			load(b, new(Cache), wide)
		}
	})
	b.Run("remembered/tables=1000", func(b *testing.B) {
		var c Cache
		for b.Loop() {
			load(b, &c, wide)
		}
	})
}
