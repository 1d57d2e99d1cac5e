package rowset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"celldexport/diffpage/schema"
	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// The tables of the random streams, one of each kind of key and storage.
var kinds = []string{
	`CREATE TABLE %s(id INTEGER PRIMARY KEY, v, w)`,
	`CREATE TABLE %s(v, w, id)`,
	`CREATE TABLE %s(id PRIMARY KEY, v, w)`,
	`CREATE TABLE %s(v, w, id COLLATE NOCASE PRIMARY KEY) WITHOUT ROWID`,
	`CREATE TABLE %s(v, id, w, g AS (id || 'g'), h AS (length(id)) STORED, PRIMARY KEY(w, id))`,
	`CREATE TABLE %s(_rowid_, v, w, id)`,
}

// createKinds makes a table of each kind.
func createKinds(d *database) {
	d.t.Helper()
	for i, create := range kinds {
		d.exec(fmt.Sprintf(create, string("pqrstu"[i])))
	}
	d.exec(`CREATE TABLE _cf_KV(scope TEXT, k TEXT, v TEXT, PRIMARY KEY(scope,k))`)
}

// random draws SQL statements.
type random struct{ *rand.Rand }

func (r random) value() string {
	return [...]string{
		fmt.Sprint(r.IntN(6)), fmt.Sprintf("%d.0", r.IntN(3)), fmt.Sprintf("%d.5", r.IntN(3)), "NULL",
		fmt.Sprintf("'%c'", "abABx"[r.IntN(5)]), fmt.Sprintf("x'%02x'", r.IntN(4)), "CAST(x'ff61' AS TEXT)",
		"'" + strings.Repeat("long", r.IntN(60)) + "'", "-0.0", "9e999",
	}[min(r.IntN(14), 9)]
}

// key is a value for keys: not the broken text, which makes bulk.
func (r random) key() string {
	if r.IntN(12) == 0 {
		return "NULL"
	}
	return [...]string{"1", "2", "1.0", "2.5", "'a'", "'A'", "'b'", "x'61'"}[r.IntN(8)]
}

func (r random) table() string { return string("pqrstu"[r.IntN(6)]) }

// some is a condition that holds for a part of the rows.
func (r random) some() string {
	return fmt.Sprintf("%s IN (%s, %s, %s)", [...]string{"id", "w"}[r.IntN(2)], r.key(), r.key(), r.key())
}

func (r random) statement() string {
	t := r.table()
	if r.IntN(10) == 0 {
		return fmt.Sprintf(`INSERT OR REPLACE INTO _cf_KV VALUES ('Shelf:%s', 'k%d', x'%02x')`, []string{"a17", "b"}[r.IntN(2)], r.IntN(4), r.IntN(4))
	}
	if r.IntN(20) == 0 {
		return fmt.Sprintf(`UPDATE OR REPLACE _cf_KV SET scope = 'Shelf:%s' WHERE k = 'k%d'`, []string{"a17", "b"}[r.IntN(2)], r.IntN(4))
	}
	switch n := r.IntN(100); {
	case n < 50:
		var tuples []string
		for range 1 + r.IntN(4) {
			tuples = append(tuples, fmt.Sprintf("(%s, %s, %s)", r.key(), r.value(), r.key()))
		}
		return fmt.Sprintf(`INSERT OR REPLACE INTO %s(id, v, w) VALUES %s`, t, strings.Join(tuples, ", "))
	case n < 62:
		return fmt.Sprintf(`UPDATE OR REPLACE %s SET id = %s WHERE %s`, t, r.key(), r.some())
	case n < 74:
		return fmt.Sprintf(`UPDATE OR REPLACE %s SET v = %s WHERE %s`, t, r.value(), r.some())
	case n < 82:
		return fmt.Sprintf(`DELETE FROM %s WHERE %s`, t, r.some())
	case n < 84:
		return `DELETE FROM ` + t
	case n < 87:
		return `VACUUM`
	case n < 90:
		return fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, t, r.table())
	case n < 92:
		return fmt.Sprintf(`ALTER TABLE %s ADD COLUMN x%d DEFAULT 1.5`, t, r.IntN(100))
	case n < 95:
		return `DROP TABLE ` + t
	default:
		return fmt.Sprintf(kinds[r.IntN(len(kinds))], t)
	}
}

// try executes a statement that may not fit the tables as they are.
func (d *database) try(statement string) {
	if _, err := d.db.Exec(statement); err != nil {
		return
	}
}

// expected is what a consumer has to hold: key and row of every exported row,
// by table, from SELECT alone.
func expected(s *state) map[string][]string {
	want := make(map[string][]string)
	for _, t := range s.schema.Tables {
		name, ok := exported(t)
		if !ok || t.Kind == schema.Virtual {
			continue
		}
		want[name] = []string{}
		for _, r := range s.rows[t.Name] {
			if line, ok := expectedRow(t, r); ok {
				want[name] = append(want[name], line)
			}
		}
		slices.Sort(want[name])
	}
	return want
}

func expectedRow(t *schema.Table, r *fakeRow) (string, bool) {
	var key, row []envelope.Value
	if t.Name == storedKV {
		key = append(key, expectedValue(r, 1))
		row = append(row, expectedValue(r, 1), expectedValue(r, 2))
		own := expectedValue(r, 0) == envelope.Text("Shelf:a17")
		return string(envelope.AppendValues(envelope.AppendValues(nil, key), row)), own
	}
	for _, k := range t.Key {
		v := expectedValue(r, k)
		if v.Class() == envelope.ClassNull {
			return "", false
		}
		key = append(key, v)
	}
	if len(key) == 0 {
		key = append(key, envelope.Int(r.rowid))
	}
	for i := range t.Columns {
		if t.Columns[i].Hidden == 0 {
			row = append(row, expectedValue(r, i))
		}
	}
	return string(envelope.AppendValues(envelope.AppendValues(nil, key), row)), true
}

func expectedValue(r *fakeRow, i int) envelope.Value {
	c := r.cells[i]
	switch string("nirtb"[c.Class]) {
	case "i":
		return envelope.Int(c.Int)
	case "r":
		return envelope.Real(c.Real)
	case "t":
		if !strings.ContainsRune(string(c.Bytes), '\uFFFD') && strings.ToValidUTF8(string(c.Bytes), "\uFFFD") == string(c.Bytes) {
			return envelope.Text(string(c.Bytes))
		}
		return envelope.Blob(c.Bytes)
	case "b":
		return envelope.Blob(c.Bytes)
	}
	return envelope.Null()
}

// consumer is what apply holds of the stream, without uncertain tables, which
// are returned apart.
func consumer(s *apply.State) (map[string][]string, map[string]bool) {
	got, uncertain := make(map[string][]string), make(map[string]bool)
	for _, id := range s.Streams() {
		for _, t := range s.Tables(id) {
			if t.Uncertain {
				uncertain[t.Table] = true
				continue
			}
			got[t.Table] = []string{}
			for _, r := range t.Rows {
				got[t.Table] = append(got[t.Table], string(envelope.AppendValues(envelope.AppendValues(nil, r.Key), r.Values)))
			}
			slices.Sort(got[t.Table])
		}
	}
	return got, uncertain
}

// After every unit of a random stream a consumer that applied the records
// holds what SELECT shows; the records are the same in any memory, and so is
// what they lead to at any record size.
func TestConsumerEqualsSelect(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := random{rand.New(rand.NewPCG(seed, 8))}
			s := newTape(t)
			createKinds(s.d)
			s.opt.MaxRecordBytes = []int64{1 << 20, 700, 520}[seed%3]
			states := [2]*apply.State{apply.New(), apply.New()}
			for range 25 {
				for range 1 + r.IntN(6) {
					s.d.try(r.statement())
				}
				step(t, s, states)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// step runs one unit under several budgets and compares.
func step(t *testing.T, s *tape, states [2]*apply.State) {
	t.Helper()
	was, gens, described := s.last, maps.Clone(s.gens), maps.Clone(s.described)
	lines := s.unit()
	src := &fake{before: was, after: s.last}
	s.gens, s.described = gens, described
	small := s.opt
	small.MemoryBytes = 1 << 8
	if got := s.under(small, src); !slices.Equal(got, lines) {
		t.Fatalf("records in little memory differ:\n%s\n---\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	whole := s.opt
	whole.MaxRecordBytes = 1 << 30
	unsplit := s.under(whole, src)
	maps.Copy(s.gens, s.plan(src).Ledger())
	for _, g := range s.stats.Described {
		s.described[g] = true
	}
	want := expected(s.last)
	for i, list := range [][]string{lines, unsplit} {
		addAll(t, states[i], list)
		got, uncertain := consumer(states[i])
		for name := range uncertain {
			if i == 1 {
				t.Errorf("table %s is uncertain although every row fits", name)
			}
			got[name] = want[name]
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !slices.Equal(got[name], want[name]) {
				t.Errorf("unit %d, table %s:\ngot  %v\nwant %v\n%s", s.txid, name, got[name], want[name], strings.Join(list, "\n"))
			}
		}
		if len(got) != len(want) {
			t.Errorf("unit %d: %d tables, want %d", s.txid, len(got), len(want))
		}
	}
}

// under encodes a unit with other options.
func (s *tape) under(opt Options, src Source) []string {
	s.t.Helper()
	keep := s.opt
	s.opt = opt
	defer func() { s.opt = keep }()
	return s.encode(s.plan(src), src)
}

// addAll applies records.
func addAll(t *testing.T, s *apply.State, lines []string) {
	t.Helper()
	for _, line := range lines {
		r, err := envelope.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
}
