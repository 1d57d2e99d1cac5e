package diffpage

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"celldexport/diffpage/schema"
)

// recorder is SQLite's own account of what a unit changed, taken where it is
// written: the session oracle. Tables without a declared key it knows by their
// rowids, which a VACUUM gives out anew behind its back, and only up to
// mostByRowid rows. It knows no rows whose declared key holds NULL, nothing of tables that a unit makes, drops, alters or
// moves, and a table with generated columns it does not show whole. Under a
// collation it takes a key that was spelled anew for the old one. Texts it has
// in UTF-8, in which not all that a UTF-16 database can hold can be said.
type recorder struct {
	src     *source
	session *sqlite.Session
	changes []byte         // of the unit that ended, nil when it cannot be compared
	entries map[string]int // rows of tables that it kept for that
	units   int
	tables  int // that were compared, of all units
	rowids  int // those of them without a declared key
	blind   int // units of which a session had nothing to say
}

func newRecorder(t testing.TB, src *source) *recorder {
	t.Helper()
	r := &recorder{src: src}
	t.Cleanup(func() {
		if r.session != nil {
			r.session.Delete()
		}
	})
	r.begin(t)
	return r
}

func (r *recorder) begin(t testing.TB) {
	t.Helper()
	session, err := r.src.conn.CreateSession("main")
	if err != nil {
		t.Fatal(err)
	}
	r.session = session
	r.src.reshaped, r.src.vacuumed = nil, false
	keyByRowid(t, session)
	if err := session.Attach(""); err != nil {
		t.Fatal(err)
	}
}

// keyByRowid has a session record tables without a declared key by their
// rowids. The package that sessions come from has no way to say so, the library
// below it has.
func keyByRowid(t testing.TB, session *sqlite.Session) {
	t.Helper()
	field := reflect.ValueOf(session).Elem().FieldByName("tls")
	tls := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
	call := func(function any, args ...any) reflect.Value {
		in := []reflect.Value{tls}
		for _, arg := range args {
			in = append(in, reflect.ValueOf(arg))
		}
		out := reflect.ValueOf(function).Call(in)
		if len(out) == 0 {
			return reflect.Value{}
		}
		return out[0]
	}
	// The library takes addresses in its own memory only.
	on := uintptr(call(lib.Xsqlite3_malloc, int32(4)).Uint())
	if on == 0 {
		t.Fatal("no memory of the library's")
	}
	defer call(lib.Xsqlite3_free, on)
	*at[int32](on) = 1
	rc := call(lib.Xsqlite3session_object_config, handle(session), int32(lib.SQLITE_SESSION_OBJCONFIG_ROWID), on).Int()
	if rc != lib.SQLITE_OK || *at[int32](on) != 1 {
		t.Fatalf("a session keyed by rowid: result %d, %d", rc, *at[int32](on))
	}
}

func handle(session *sqlite.Session) uintptr {
	return uintptr(reflect.ValueOf(session).Elem().FieldByName("ptr").Uint())
}

// at is what lies at an address of the library's memory.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// mostByRowid is how many rows of a table without a declared key a session can
// tell apart: it then enlarges its hash table, for which it hashes a rowid in
// another way than for the first entry, and finds none of them again.
const mostByRowid = 128

// entriesOf are how many rows of each table a session has kept.
func entriesOf(session *sqlite.Session) map[string]int {
	out := make(map[string]int)
	for next := at[lib.Tsqlite3_session](handle(session)).FpTable; next != 0; {
		tab := at[lib.TSessionTable](next)
		var name []byte
		for p := tab.FzName; *at[byte](p) != 0; p++ {
			name = append(name, *at[byte](p))
		}
		out[string(name)] += int(tab.FnEntry)
		next = tab.FpNext
	}
	return out
}

func (r *recorder) end(t testing.TB) {
	t.Helper()
	r.changes, r.entries = nil, entriesOf(r.session)
	var out bytes.Buffer
	switch err := r.session.WriteChangeset(&out); {
	case err == nil:
		r.changes = append([]byte{}, out.Bytes()...)
	case r.src.reshaped != nil && (sqlite.ErrCode(err) == sqlite.ResultSchema || sqlite.ErrCode(err) == sqlite.ResultError):
		// A table that it has changes of is not what it was, or got a column
		// whose default is a bare word, which a session takes for a column.
		r.blind++
	default:
		t.Fatal(err)
	}
	r.session.Delete()
	r.session = nil
}

// number is a value of a dump with integral reals as integers: a session has
// the default of an added column without the column's affinity.
func number(val string) string {
	if val == "" || val[0] != 'r' {
		return val
	}
	bits, err := strconv.ParseUint(val[1:], 16, 64)
	if f := math.Float64frombits(bits); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return fmt.Sprintf("i%d", int64(f))
	}
	return val
}

// uncertain says that a key holds a real that some integer equals: two such
// keys are one to a session or two, as they fall into its hash table. Or that it
// holds a text a session has no words for.
func uncertain(changes keyed) bool {
	for key := range changes {
		if slices.ContainsFunc(strings.Split(key, "/"), func(val string) bool { return val == "?" || number(val) != val }) {
			return true
		}
	}
	return false
}

// keyed are net changes by the text of the declared key.
type keyed map[string]event

// compare holds the row changes of a unit against the session's. before are
// all rows before it: a session has what a statement that was rolled back did
// to a key, and looks at the end for what became of it. When that was to put
// 3.0 in the place of 3, it finds the old row under the new key and takes it
// for one that was inserted.
func (r *recorder) compare(t testing.TB, c *Change, before map[string]tableDump) {
	t.Helper()
	if r.changes == nil {
		return
	}
	theirs := r.read(t, c.After())
	for _, tab := range c.After().Tables {
		if !r.knows(c, tab, before[tab.Name]) {
			continue
		}
		ours := byKey(t, tab, spoken(c.After().Encoding, rows(t, c, tab.Name)))
		if uncertain(ours) || uncertain(theirs[tab.Name]) {
			continue
		}
		for key, e := range theirs[tab.Name] {
			o, ok := ours[key]
			if !ok && e.op == Insert && len(tab.Key) > 0 && holds(c.After().Encoding, before[tab.Name], e.after) {
				continue
			}
			if !ok || o.op != e.op || !agrees(e.before, o.before) || !agrees(e.after, o.after) {
				t.Errorf("table %s: session has %v, diff %v", tab.Name, cut(e.String()), cut(o.String()))
			}
		}
		for key, o := range ours {
			if _, ok := theirs[tab.Name][key]; !ok {
				t.Errorf("table %s: session does not have %v", tab.Name, cut(o.String()))
			}
		}
		if len(ours) > 0 {
			r.tables++
			if len(tab.Key) == 0 {
				r.rowids++
			}
		}
	}
	r.units++
}

// knows reports whether a session saw all that the unit did to a table.
func (r *recorder) knows(c *Change, tab *schema.Table, before tableDump) bool {
	was := c.Before().ByName(tab.Name)
	if !sessionKnows(tab) || r.src.reshaped[tab.Name] || was == nil || was.SQL != tab.SQL {
		return false
	}
	if len(tab.Key) == 0 {
		return !r.src.vacuumed && r.entries[tab.Name] < mostByRowid
	}
	return c.After().Encoding == schema.UTF8 || !unspeakable(c.After().Encoding, tab, before)
}

// unspeakable reports whether a key of the table has no words in UTF-8: a session
// does not find such a row again.
func unspeakable(enc schema.Encoding, tab *schema.Table, d tableDump) bool {
	for _, vals := range d {
		if slices.Contains(strings.Split(declaredKey(tab, inUTF8(enc, vals)), "/"), "?") {
			return true
		}
	}
	return false
}

// spoken has the texts of events in UTF-8, with "?" for those that have none.
func spoken(enc schema.Encoding, events []event) []event {
	if enc == schema.UTF8 {
		return events
	}
	out := slices.Clone(events)
	for i, e := range out {
		out[i].before, out[i].after = inUTF8(enc, e.before), inUTF8(enc, e.after)
	}
	return out
}

func inUTF8(enc schema.Encoding, row string) string {
	vals := strings.Split(row, "|")
	for i, val := range vals {
		if !strings.HasPrefix(val, "t") {
			continue
		}
		vals[i] = "?"
		if text, err := hex.DecodeString(val[1:]); err == nil {
			if plain, ok := enc.AppendUTF8(nil, text); ok && !bytes.ContainsAny(plain, "\ufffe\uffff") {
				vals[i] = "t" + hex.EncodeToString(plain)
			}
		}
	}
	return strings.Join(vals, "|")
}

// holds reports whether a row with these values, key included, is in the table.
func holds(enc schema.Encoding, d tableDump, row string) bool {
	for _, vals := range d {
		if enc != schema.UTF8 {
			vals = inUTF8(enc, vals)
		}
		if agrees(row, vals) {
			return true
		}
	}
	return false
}

func sessionKnows(tab *schema.Table) bool {
	return tab.Kind == schema.Ordinary && !strings.Contains(tab.SQL, "COLLATE") && !strings.HasPrefix(tab.Name, "sqlite_") &&
		!slices.ContainsFunc(tab.Columns, func(c schema.Column) bool { return c.Generated() })
}

// agrees compares the columns that a session names with a whole row.
func agrees(part, row string) bool {
	p, w := strings.Split(part, "|"), strings.Split(row, "|")
	return slices.EqualFunc(p, w, func(named, is string) bool { return named == "?" || is == "?" || number(named) == number(is) })
}

// byKey nets events of rowids to events of declared keys.
func byKey(t testing.TB, tab *schema.Table, events []event) keyed {
	t.Helper()
	was, is := make(map[string]string), make(map[string]string)
	for _, e := range events {
		for vals, side := range map[string]map[string]string{e.before: was, e.after: is} {
			if vals == "" {
				continue
			}
			key := e.key
			if len(tab.Key) > 0 {
				key = declaredKey(tab, vals)
			}
			if !slices.Contains(strings.Split(key, "/"), "n") {
				side[key] = vals
			}
		}
	}
	out := make(keyed)
	for key, b := range was {
		if a, ok := is[key]; !ok {
			out[key] = event{Delete, key, b, ""}
		} else if a != b {
			out[key] = event{Update, key, b, a}
		}
	}
	for key, a := range is {
		if _, ok := was[key]; !ok {
			out[key] = event{Insert, key, "", a}
		}
	}
	return out
}

// read takes a changeset apart.
func (r *recorder) read(t testing.TB, sc *schema.Schema) map[string]keyed {
	t.Helper()
	out := make(map[string]keyed)
	iter, err := sqlite.NewChangesetIterator(bytes.NewReader(r.changes))
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for {
		more, err := iter.Next()
		if err != nil {
			t.Fatalf("read a changeset: %v", err)
		}
		if !more {
			return out
		}
		op, err := iter.Operation()
		if err != nil {
			t.Fatal(err)
		}
		tab := sc.ByName(op.TableName)
		if tab == nil || !sessionKnows(tab) {
			continue
		}
		var rowid string
		e := event{op: map[sqlite.OpType]Op{sqlite.OpInsert: Insert, sqlite.OpUpdate: Update, sqlite.OpDelete: Delete}[op.Type]}
		if e.op != Insert {
			rowid, e.before = sessionRow(t, tab, op.NumColumns, iter.Old)
		}
		if e.op != Delete {
			var is string
			if is, e.after = sessionRow(t, tab, op.NumColumns, iter.New); e.op == Insert {
				rowid = is
			}
		}
		if e.key = rowid; len(tab.Key) > 0 {
			e.key = declaredKey(tab, cmp.Or(e.before, e.after))
		}
		if e.op == Update {
			if e.before, e.after = hideUnchanged(tab, e.before, e.after); strings.Trim(e.after, "?|") == "" {
				continue
			}
		}
		if out[tab.Name] == nil {
			out[tab.Name] = make(keyed)
		}
		out[tab.Name][e.key] = e
	}
}

// hideUnchanged puts "?" where a session says nothing about a column of an
// update, which reads as NULL, or says what is not so, a default turned from
// integer to real: such a column did not change, and the key of an update
// never does.
func hideUnchanged(tab *schema.Table, before, after string) (string, string) {
	b, a := strings.Split(before, "|"), strings.Split(after, "|")
	for i := range b {
		if number(b[i]) == number(a[i]) {
			b[i], a[i] = "?", "?"
		}
		if tab.Columns[i].PK > 0 {
			a[i] = "?"
		}
	}
	return strings.Join(b, "|"), strings.Join(a, "|")
}

// declaredKey is the declared key of a row of a dump.
func declaredKey(tab *schema.Table, row string) string {
	vals := strings.Split(row, "|")
	var key []string
	for _, i := range tab.Key {
		key = append(key, vals[i])
	}
	return strings.Join(key, "/")
}

// sessionRow is a row in the form of a dump, its texts in UTF-8. In front of a
// table without a declared key a session has the rowid.
func sessionRow(t testing.TB, tab *schema.Table, columns int, value func(int) (sqlite.Value, error)) (rowid, row string) {
	t.Helper()
	first := 0
	if len(tab.Key) == 0 {
		first = 1
	}
	if columns != first+len(tab.Columns) {
		t.Fatalf("table %s: a session has %d columns", tab.Name, columns)
	}
	var vals []byte
	for i := range columns {
		v, err := value(i)
		if err != nil {
			t.Fatal(err)
		}
		c := Cell{Class: columnClasses[v.Type()]}
		switch c.Class {
		case Integer:
			c.Int = v.Int64()
		case Real:
			c.Real = v.Float()
		case Text:
			c.Bytes = []byte(v.Text())
		case Blob:
			c.Bytes = v.Blob()
		}
		if i < first {
			rowid = fmt.Sprint(c.Int)
			continue
		}
		vals, _ = appendCell(vals, i-first, c)
	}
	return rowid, string(vals)
}
