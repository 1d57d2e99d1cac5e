package schema

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
)

// ErrNames is wrapped when two tables or views have one name.
var ErrNames = errors.New("two tables of one name")

// Cache reads schemas and remembers them by their text, whatever their root
// pages are: thousands of databases made by one application cost one reading.
// The zero value is ready and remembers a few hundred. It is safe for
// concurrent use.
type Cache struct {
	mu   sync.Mutex
	read map[[sha256.Size]byte][]*Table
	age  [][sha256.Size]byte // in the order they were read
}

// cacheSize bounds the memory of a Cache; a node runs few applications, and a
// schema costs well under a millisecond per table to read again.
const cacheSize = 256

// Load makes the schema that the rows of sqlite_schema describe, in their
// order. A table that cannot be understood is in it as Unreadable. ErrNames is
// wrapped when the rows contradict each other; any other error means that
// SQLite failed us.
func (c *Cache) Load(enc Encoding, entries []Entry) (*Schema, error) {
	key := digest(enc, entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	tables, ok := c.read[key]
	if !ok {
		var err error
		if tables, err = load(enc, entries); err != nil {
			return nil, fmt.Errorf("read the schema of a database: %w", err)
		}
		c.remember(key, tables)
	}
	return rooted(enc, tables, entries)
}

func (c *Cache) remember(key [sha256.Size]byte, tables []*Table) {
	if c.read == nil {
		c.read = make(map[[sha256.Size]byte][]*Table)
	}
	if len(c.age) >= cacheSize {
		delete(c.read, c.age[0])
		c.age = append(c.age[:0], c.age[1:]...)
	}
	c.read[key] = tables
	c.age = append(c.age, key)
}

// rooted gives the remembered tables the root pages of this database.
func rooted(enc Encoding, tables []*Table, entries []Entry) (*Schema, error) {
	s := New(enc)
	s.Tables = make([]*Table, 0, len(tables))
	i := 0
	for j := range entries {
		if e := &entries[j]; e.Type != "table" && e.Type != "view" {
			continue
		}
		t := *tables[i]
		t.Root = entries[j].Root
		i++
		if s.byName[t.Name] != nil {
			return nil, fmt.Errorf("read the schema of a database: %q: %w", t.Name, ErrNames)
		}
		s.Tables = append(s.Tables, &t)
		s.byName[t.Name] = &t
	}
	return s, nil
}
