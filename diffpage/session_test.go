package diffpage

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"celldexport/diffpage/schema"
)

// recorder is SQLite's own account of what a unit changed, taken where it is
// written: the session oracle. It knows no tables without a declared key, no
// rows whose key holds NULL, and nothing of a unit that changes the schema;
// a table with generated columns it does not show whole, and under a collation
// it takes a key that was spelled anew for the old one.
type recorder struct {
	src     *source
	session *sqlite.Session
	changes []byte // of the unit that ended, nil when it cannot be compared
	units   int
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
	if err == nil {
		err = session.Attach("")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.session, r.src.reshaped = session, false
}

func (r *recorder) end(t testing.TB) {
	t.Helper()
	r.changes = nil
	if !r.src.reshaped {
		var out bytes.Buffer
		if err := r.session.WriteChangeset(&out); err != nil {
			t.Fatal(err)
		}
		r.changes = append([]byte{}, out.Bytes()...)
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

// mixed says that a key holds a real that some integer equals. Two such keys
// are one to a session or two, as they fall into its hash table.
func mixed(changes keyed) bool {
	for key := range changes {
		if slices.ContainsFunc(strings.Split(key, "/"), func(val string) bool { return number(val) != val }) {
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
		if !sessionKnows(tab) {
			continue
		}
		ours := byKey(t, tab, rows(t, c, tab.Name))
		if mixed(ours) || mixed(theirs[tab.Name]) {
			continue
		}
		for key, e := range theirs[tab.Name] {
			o, ok := ours[key]
			if !ok && e.op == Insert && holds(before[tab.Name], e.after) {
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
	}
	r.units++
}

// holds reports whether a row with these values, key included, is in the table.
func holds(d tableDump, row string) bool {
	for _, vals := range d {
		if agrees(row, vals) {
			return true
		}
	}
	return false
}

func sessionKnows(tab *schema.Table) bool {
	return tab.Kind == schema.Ordinary && len(tab.Key) > 0 && !strings.Contains(tab.SQL, "COLLATE") && !strings.HasPrefix(tab.Name, "sqlite_") &&
		!slices.ContainsFunc(tab.Columns, func(c schema.Column) bool { return c.Generated() })
}

// agrees compares the columns that a session names with a whole row.
func agrees(part, row string) bool {
	p, w := strings.Split(part, "|"), strings.Split(row, "|")
	return slices.EqualFunc(p, w, func(named, is string) bool { return named == "?" || number(named) == number(is) })
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
			key := keyOf(tab, strings.Split(vals, "|"))
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
		e := event{op: map[sqlite.OpType]Op{sqlite.OpInsert: Insert, sqlite.OpUpdate: Update, sqlite.OpDelete: Delete}[op.Type]}
		if e.op != Insert {
			e.before = sessionRow(t, op.NumColumns, iter.Old)
			e.key = keyOf(tab, strings.Split(e.before, "|"))
		}
		if e.op != Delete {
			e.after = sessionRow(t, op.NumColumns, iter.New)
		}
		if e.op == Update {
			if e.before, e.after = hideUnchanged(tab, e.before, e.after); strings.Trim(e.after, "?|") == "" {
				continue
			}
		}
		if e.op == Insert {
			e.key = keyOf(tab, strings.Split(e.after, "|"))
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

// sessionRow is a row in the form of a dump.
func sessionRow(t testing.TB, columns int, value func(int) (sqlite.Value, error)) string {
	t.Helper()
	vals := make([]string, columns)
	for i := range vals {
		v, err := value(i)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case v.Type() == sqlite.TypeInteger:
			vals[i] = fmt.Sprintf("i%d", v.Int64())
		case v.Type() == sqlite.TypeFloat:
			vals[i] = fmt.Sprintf("r%016x", math.Float64bits(v.Float()))
		case v.Type() == sqlite.TypeText:
			vals[i] = "t" + hex.EncodeToString([]byte(v.Text()))
		case v.Type() == sqlite.TypeBlob:
			vals[i] = "b" + hex.EncodeToString(v.Blob())
		default:
			vals[i] = "n"
		}
	}
	return strings.Join(vals, "|")
}
