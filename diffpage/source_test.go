package diffpage

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// source is a database that is written to by SQL, the way a cell is.
type source struct {
	t    testing.TB
	conn *sqlite.Conn
	path string
	last []byte // the file as of the last unit
	rnd  *rand.Rand
	// reshaped holds the words of statements that a session does not see all
	// of, since the last unit it was asked about: names of tables among them.
	reshaped map[string]bool
	vacuumed bool // by then
	patient  bool // tables that cannot be read are passed over
}

func newSource(t testing.TB, pragmas ...string) *source {
	t.Helper()
	s := &source{t: t, path: filepath.Join(t.TempDir(), "source.db")}
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	s.conn = conn
	t.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	s.exec("PRAGMA synchronous=OFF")
	s.exec(pragmas...)
	s.exec("PRAGMA synchronous=OFF", "PRAGMA journal_mode=WAL", "PRAGMA wal_autocheckpoint=0")
	return s
}

func (s *source) exec(sql ...string) {
	s.t.Helper()
	for _, q := range sql {
		for rest := q; strings.TrimSpace(rest) != ""; {
			stmt, n, err := s.conn.PrepareTransient(rest)
			for more := err == nil; more; {
				more, err = stmt.Step()
			}
			if stmt != nil {
				err = errors.Join(err, stmt.Finalize())
			}
			if err != nil {
				s.t.Fatalf("%s: %v", q, err)
			}
			rest = rest[len(rest)-n:]
		}
	}
}

// reopen puts a database image in the place of the source.
func (s *source) reopen(image []byte) { s.reopenSparse(image, int64(len(image))) }

// reopenSparse is reopen with a hole behind the image, up to a length.
func (s *source) reopenSparse(image []byte, length int64) {
	s.t.Helper()
	if err := s.conn.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(s.path, image, 0o600), os.Truncate(s.path, length)); err != nil {
		s.t.Fatal(err)
	}
	conn, err := sqlite.OpenConn(s.path, sqlite.OpenReadWrite)
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn = conn
	s.exec("PRAGMA synchronous=OFF", "PRAGMA journal_mode=WAL", "PRAGMA wal_autocheckpoint=0")
}

// reservedImage is an empty database with reserved bytes at the end of every
// page: such as SQLite makes one, with one table page, the header edited.
func reservedImage(t testing.TB, size, reserved int) []byte {
	t.Helper()
	image := make([]byte, size)
	copy(image, "SQLite format 3\x00")
	image[16], image[17] = byte(size>>8), byte(size|size>>16)
	image[18], image[19], image[20] = 1, 1, byte(reserved)
	image[21], image[22], image[23] = 64, 32, 32
	image[27], image[31] = 1, 1
	image[47], image[59] = 4, 1
	image[95] = 1
	image[100] = 13
	usable := size - reserved
	image[105], image[106] = byte(usable>>8), byte(usable)
	return image
}

// replaceRandom has the source draw random values from a generator that
// seeded sets, so that a script does the same when it is run again.
func (s *source) replaceRandom() {
	s.t.Helper()
	s.seeded(0)
	number := func(sqlite.Context, []sqlite.Value) (sqlite.Value, error) {
		return sqlite.IntegerValue(int64(s.rnd.Uint64())), nil
	}
	blob := func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		b := make([]byte, max(1, args[0].Int()))
		for i := range b {
			b[i] = byte(s.rnd.Uint32())
		}
		return sqlite.BlobValue(b), nil
	}
	err := errors.Join(s.conn.CreateFunction("random", &sqlite.FunctionImpl{Scalar: number, AllowIndirect: true}),
		s.conn.CreateFunction("randomblob", &sqlite.FunctionImpl{NArgs: 1, Scalar: blob, AllowIndirect: true}))
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *source) seeded(seed uint64) { s.rnd = rand.New(rand.NewPCG(seed, 3)) }

func errorIs(err, target error) bool { return errors.Is(err, target) }

// reshapes matches statements that make, drop, alter or move tables. What is
// attached to a table, and who writes to it, is none of that.
var reshapes = regexp.MustCompile(`^(CREATE TABLE|DROP TABLE|ALTER)\b|\bsqlite_schema\b`)

// try runs a statement that may fail, as a random one does.
func (s *source) try(q string) bool {
	if reshapes.MatchString(q) {
		if s.reshaped == nil {
			s.reshaped = make(map[string]bool)
		}
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(q, -1) {
			s.reshaped[word] = true
		}
	}
	s.vacuumed = s.vacuumed || strings.HasPrefix(q, "VACUUM")
	return sqlitex.ExecuteTransient(s.conn, q, nil) == nil
}

// query shows the first column of every row as text.
func (s *source) query(q string, visit func(string)) error {
	return sqlitex.ExecuteTransient(s.conn, q, &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		visit(st.ColumnText(0))
		return nil
	}})
}

// unit is what the database file became since the last unit: the pages that
// differ, and the number of pages.
func (s *source) unit() (*shadow.Images, uint32) {
	s.t.Helper()
	s.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	file, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	images, commit := unitOf(s.t, s.last, file)
	s.last = file
	return images, commit
}

func pageSizeOf(file []byte) int {
	if len(file) < 100 {
		return 512
	}
	if n := int(file[16])<<8 | int(file[17]); n > 1 {
		return n
	}
	return 65536
}

func unitOf(t testing.TB, was, is []byte) (*shadow.Images, uint32) {
	t.Helper()
	size := pageSizeOf(is)
	if pageSizeOf(was) != size {
		was = nil
	}
	images := shadow.NewImages(uint32(size), int64(size)*20, t.TempDir())
	for at := 0; at < len(is); at += size {
		page := is[at : at+size]
		if at < len(was) && string(was[at:at+size]) == string(page) {
			continue
		}
		if err := images.Add(uint32(at/size+1), page); err != nil {
			t.Fatal(err)
		}
	}
	return images, uint32(len(is) / size)
}

// tableDump maps the key of every row to its values.
type tableDump map[string]string

// dump reads all tables through SQLite.
func (s *source) dump(sc *schema.Schema) map[string]tableDump {
	s.t.Helper()
	out := make(map[string]tableDump)
	for _, t := range sc.Tables {
		if t.Unreadable != "" && !s.patient {
			s.t.Fatalf("table %s is unreadable: %s", t.Name, t.Unreadable)
		}
		if t.Unreadable == "" && (t.Kind == schema.Ordinary || t.Kind == schema.Shadow) {
			out[t.Name] = s.dumpTable(t)
		}
	}
	return out
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (s *source) dumpTable(t *schema.Table) tableDump {
	s.t.Helper()
	var cols []string
	if !t.WithoutRowid {
		cols = append(cols, rowidName(t))
	} else {
		cols = append(cols, "NULL")
	}
	for _, c := range t.Columns {
		if c.Hidden == 2 {
			cols = append(cols, "NULL", "NULL")
			continue
		}
		cols = append(cols, quoteName(c.Name), "CAST("+quoteName(c.Name)+" AS BLOB)")
	}
	out := make(tableDump)
	ends := make([]int, len(t.Columns))
	var all, one []byte
	err := sqlitex.ExecuteTransient(s.conn, "SELECT "+strings.Join(cols, ",")+" FROM "+quoteName(t.Name), &sqlitex.ExecOptions{
		ResultFunc: func(st *sqlite.Stmt) error {
			all = all[:0]
			for i := range t.Columns {
				c := Cell{Class: columnClasses[st.ColumnType(1+2*i)]}
				switch c.Class {
				case Integer:
					c.Int = st.ColumnInt64(1 + 2*i)
				case Real:
					c.Real = st.ColumnFloat(1 + 2*i)
				case Text, Blob:
					n := st.ColumnLen(2 + 2*i)
					one = slices.Grow(one[:0], n)[:n]
					st.ColumnBytes(2+2*i, one)
					c.Bytes = one
				}
				all, ends[i] = appendCell(all, i, c)
			}
			key := strconv.FormatInt(st.ColumnInt64(0), 10)
			if t.WithoutRowid {
				key = keyOf(t, all, ends)
			}
			if _, ok := out[key]; ok {
				s.t.Fatalf("table %s has key %s twice", t.Name, key)
			}
			out[key] = string(all)
			return nil
		}})
	if err != nil {
		s.t.Fatalf("dump %s: %v", t.Name, err)
	}
	return out
}

var columnClasses = map[sqlite.ColumnType]Class{
	sqlite.TypeNull: Null, sqlite.TypeInteger: Integer, sqlite.TypeFloat: Real, sqlite.TypeText: Text, sqlite.TypeBlob: Blob,
}

func rowidName(t *schema.Table) string {
	if t.Alias >= 0 {
		return quoteName(t.Columns[t.Alias].Name)
	}
next:
	for _, name := range []string{"rowid", "_rowid_", "oid"} {
		for _, c := range t.Columns {
			if strings.EqualFold(c.Name, name) {
				continue next
			}
		}
		return name
	}
	return "NULL"
}

// appendCell adds the value of the i-th column to a row in the form of a dump,
// in which a bar is between two columns, and says where it ends.
func appendCell(row []byte, i int, c Cell) ([]byte, int) {
	if i > 0 {
		row = append(row, '|')
	}
	switch c.Class {
	case Null:
		row = append(row, 'n')
	case Integer:
		row = strconv.AppendInt(append(row, 'i'), c.Int, 10)
	case Real:
		row = append(row, 'r')
		row = hex.AppendEncode(row, binary.BigEndian.AppendUint64(nil, math.Float64bits(c.Real)))
	case Text:
		row = hex.AppendEncode(append(row, 't'), c.Bytes)
	case Blob:
		row = hex.AppendEncode(append(row, 'b'), c.Bytes)
	}
	return row, len(row)
}

// keyOf is the declared key of a row, of which it is said where each column
// ends.
func keyOf(t *schema.Table, row []byte, ends []int) string {
	var key []byte
	for n, i := range t.Key {
		start := 0
		if i > 0 {
			start = ends[i-1] + 1
		}
		if n > 0 {
			key = append(key, '/')
		}
		key = append(key, row[start:ends[i]]...)
	}
	return string(key)
}
