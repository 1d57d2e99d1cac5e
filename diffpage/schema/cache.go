package schema

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// ErrNames is wrapped when two tables or views have one name.
var ErrNames = errors.New("two tables of one name")

// Cache reads schemas and remembers their tables by name and text, whatever
// their root pages are: thousands of databases made by one application cost
// one reading, and a database that gets one more table costs that table. The
// zero value is ready. It is safe for concurrent use.
type Cache struct {
	mu     sync.Mutex
	tables map[[sha256.Size]byte]*list.Element
	used   list.List // of *remembered, the latest used first
	bytes  int       // the size of all of them
	loads  int       // calls of Load so far
	buf    []byte    // of the digest at hand
}

// remembered is a table that was read, as every schema that has it shows it
// but for its root page and whether a virtual table owns it.
type remembered struct {
	key   [sha256.Size]byte
	table *Table
	bytes int
	load  int // the last call of Load that asked for it
}

// cacheBytes bounds the memory of a Cache, by the estimate of Table.size: some
// thousands of tables, of which reading one takes a tenth of a millisecond.
// What was not used for longest goes first. Only the tables of the latest
// Load stay whatever their size, since its caller holds them anyway.
const cacheBytes = 16 << 20

// Load makes the schema that the rows of sqlite_schema describe, in their
// order. A table that cannot be understood is in it as Unreadable. ErrNames is
// wrapped when the rows contradict each other; any other error means that
// SQLite failed us.
func (c *Cache) Load(enc Encoding, entries []Entry) (*Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads++
	s := New(enc)
	s.Tables = make([]*Table, 0, len(entries))
	names := make(map[string]bool, len(entries)) // without case, of tables that SQLite is shown
	var unread []pending
	for i := range entries {
		t, key, known := c.table(enc, &entries[i])
		if t == nil {
			continue
		}
		if s.byName[t.Name] != nil {
			return nil, fmt.Errorf("read the schema of a database: %q: %w", t.Name, ErrNames)
		}
		s.Tables = append(s.Tables, t)
		s.byName[t.Name] = t
		if t.Kind != Ordinary || t.Unreadable != "" && !known {
			continue
		}
		if name := lower(t.Name); names[name] {
			t.forget("another table has its name but for case")
		} else if names[name] = true; !known {
			unread = append(unread, pending{t, &entries[i], key})
		}
	}
	if err := read(enc, unread); err != nil {
		return nil, fmt.Errorf("read the schema of a database: %w", err)
	}
	for _, p := range unread {
		c.remember(p.key, p.Table)
	}
	c.evict()
	if cap(c.buf) > 1<<16 {
		c.buf = nil
	}
	markShadows(s.Tables)
	return s, nil
}

// table is the table of an entry, nil when it makes none: as it is remembered,
// or else as far as its own fields tell.
func (c *Cache) table(enc Encoding, e *Entry) (t *Table, key [sha256.Size]byte, known bool) {
	if e.Type != "table" || e.Root == 0 {
		return describe(enc, e), key, false
	}
	key, c.buf = e.digest(enc, c.buf)
	el := c.tables[key]
	if el == nil {
		return describe(enc, e), key, false
	}
	r := el.Value.(*remembered)
	r.load = c.loads
	c.used.MoveToFront(el)
	twin := *r.table
	twin.Root = e.Root
	return &twin, key, true
}

func (c *Cache) remember(key [sha256.Size]byte, t *Table) {
	if c.tables == nil {
		c.tables = make(map[[sha256.Size]byte]*list.Element)
	}
	twin := *t
	r := &remembered{key: key, table: &twin, bytes: t.size(), load: c.loads}
	c.tables[key] = c.used.PushFront(r)
	c.bytes += r.bytes
}

// evict makes room, but not at the cost of the latest Load.
func (c *Cache) evict() {
	for c.bytes > cacheBytes {
		el := c.used.Back()
		r := el.Value.(*remembered)
		if r.load == c.loads {
			return
		}
		c.used.Remove(el)
		delete(c.tables, r.key)
		c.bytes -= r.bytes
	}
}

// size estimates the bytes that a remembered table keeps from the collector,
// what the cache itself needs for it included.
func (t *Table) size() int {
	// A map's slot, which is up to half empty, and the list's element.
	const slot = 2*(sha256.Size+8) + int(unsafe.Sizeof(list.Element{})+unsafe.Sizeof(remembered{}))
	n := slot + int(unsafe.Sizeof(*t)) + len(t.Name) + len(t.SQL) + len(t.Unreadable)
	n += cap(t.Columns)*int(unsafe.Sizeof(Column{})) + 8*(cap(t.Key)+cap(t.Stored))
	for i := range t.Columns {
		c := &t.Columns[i]
		n += len(c.Name) + len(c.Type) + len(c.Default.Body)
	}
	return n
}
