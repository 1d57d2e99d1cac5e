// Package schema turns the rows of a database's sqlite_schema table into
// table descriptions: columns, keys and where each column's value sits in a
// stored record. SQLite itself reads the CREATE texts, in a private in-memory
// database that holds nothing else, so no second SQL grammar can drift from
// the first; collations, functions and virtual-table modules that only the
// writer has are never needed.
package schema

// Kind says what a name in sqlite_schema stands for.
type Kind uint8

// The kinds of a Table.
const (
	// Ordinary is a table whose rows are in a tree of its own, with or
	// without a rowid. sqlite_sequence is one.
	Ordinary Kind = iota
	// Virtual is a virtual table: no tree, no rows of its own, no columns
	// here, since only its module knows them.
	Virtual
	// Shadow is an ordinary tree that a virtual table of this database keeps
	// its content in (docs_content of docs, for one).
	Shadow
	// View is a view: no tree, no columns here.
	View
	// Internal is a table SQLite keeps for its own use (sqlite_stat1 and its
	// like); its columns are not read.
	Internal
)

// String is the kind in lower case, for messages.
func (k Kind) String() string {
	switch k {
	case Ordinary:
		return "table"
	case Virtual:
		return "virtual table"
	case Shadow:
		return "shadow table"
	case View:
		return "view"
	case Internal:
		return "internal table"
	}
	return "unknown"
}

// Schema is what sqlite_schema says at one moment. It is read-only once
// made and may be shared.
type Schema struct {
	// Encoding is the encoding of every stored text of the database.
	Encoding Encoding
	// Tables holds tables, virtual tables and views in the order of their
	// sqlite_schema rows.
	Tables []*Table

	byName map[string]*Table
}

// New makes a schema of ready tables, as tests of other packages need.
func New(enc Encoding, tables ...*Table) *Schema {
	s := &Schema{Encoding: enc, Tables: tables, byName: make(map[string]*Table, len(tables))}
	for _, t := range tables {
		s.byName[t.Name] = t
	}
	return s
}

// ByName is the table stored under exactly this name, or nil.
func (s *Schema) ByName(name string) *Table {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// Table is one table, virtual table or view.
type Table struct {
	// Name and SQL are the stored name and CREATE text, in UTF-8.
	Name, SQL string
	// Root is the root page of the tree; 0 for Virtual and View.
	Root uint32
	Kind Kind
	// WithoutRowid and Strict are the table options of those names.
	WithoutRowid, Strict bool
	// Columns are all columns in declared order, hidden and generated ones
	// too. Empty when Unreadable is set and for Virtual, View and Internal.
	Columns []Column
	// Key lists the declared PRIMARY KEY columns, as indexes into Columns,
	// in the order of the key; nil when none is declared.
	Key []int
	// Alias is the column that is another name of the rowid (INTEGER PRIMARY
	// KEY), or -1.
	Alias int
	// Unreadable says why the columns of an Ordinary or Shadow table are not
	// known; empty when they are. Its rows cannot be decoded.
	Unreadable string
	// Stored maps the fields of a stored record to Columns: field i of a
	// record is the value of column Stored[i]. Virtual generated columns are
	// in no record. The declared key comes first in a WITHOUT ROWID record,
	// where one column may also appear twice.
	Stored []int
	// KeyFields is how many leading fields of a WITHOUT ROWID record make up
	// its key; 0 for a rowid table.
	KeyFields int
}

// Column is one column as PRAGMA table_xinfo shows it.
type Column struct {
	// Name and Type are as declared; Type is empty when none was.
	Name, Type string
	// PK is the 1-based place in the PRIMARY KEY, 0 when not part of it.
	PK int
	// NotNull is the notnull flag of table_xinfo, which for a column of a
	// WITHOUT ROWID key is set without being declared.
	NotNull bool
	// Hidden is the hidden field of table_xinfo: 0 ordinary, 1 hidden column
	// of a virtual table, 2 virtual generated, 3 stored generated.
	Hidden int
	// Affinity decides how stored integers of the column are read.
	Affinity Affinity
	// Field is the place of the value in a stored record, -1 when it is in
	// none (virtual generated).
	Field int
	// Default is what SQLite reads where a record is too short to hold the
	// column, as it would be stored.
	Default Default
}

// Generated reports whether the value is computed by the database.
func (c *Column) Generated() bool { return c.Hidden >= 2 }

// Default is a value in the form of the record format (SQLite file format
// 2.1): serial type and body. The zero value is NULL.
type Default struct {
	Serial uint64
	Body   []byte
}
