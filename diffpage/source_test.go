package diffpage

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	// reshaped says that a statement was tried that a session is blind to.
	reshaped bool
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

// try runs a statement that may fail, as a random one does.
func (s *source) try(q string) bool {
	for _, word := range []string{"CREATE", "DROP", "ALTER", "PRAGMA"} {
		s.reshaped = s.reshaped || strings.HasPrefix(q, word)
	}
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
	err := sqlitex.ExecuteTransient(s.conn, "SELECT "+strings.Join(cols, ",")+" FROM "+quoteName(t.Name), &sqlitex.ExecOptions{
		ResultFunc: func(st *sqlite.Stmt) error {
			var vals []string
			for i := range t.Columns {
				vals = append(vals, columnText(st, 1+2*i))
			}
			key := fmt.Sprint(st.ColumnInt64(0))
			if t.WithoutRowid {
				key = keyOf(t, vals)
			}
			if _, ok := out[key]; ok {
				s.t.Fatalf("table %s has key %s twice", t.Name, key)
			}
			out[key] = strings.Join(vals, "|")
			return nil
		}})
	if err != nil {
		s.t.Fatalf("dump %s: %v", t.Name, err)
	}
	return out
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

func keyOf(t *schema.Table, vals []string) string {
	var key []string
	for _, i := range t.Key {
		key = append(key, vals[i])
	}
	return strings.Join(key, "/")
}

func columnText(st *sqlite.Stmt, i int) string {
	switch st.ColumnType(i) {
	case sqlite.TypeInteger:
		return fmt.Sprintf("i%d", st.ColumnInt64(i))
	case sqlite.TypeFloat:
		return fmt.Sprintf("r%016x", math.Float64bits(st.ColumnFloat(i)))
	case sqlite.TypeText, sqlite.TypeBlob:
		b := make([]byte, st.ColumnLen(i+1))
		st.ColumnBytes(i+1, b)
		if st.ColumnType(i) == sqlite.TypeText {
			return "t" + hex.EncodeToString(b)
		}
		return "b" + hex.EncodeToString(b)
	}
	return "n"
}
