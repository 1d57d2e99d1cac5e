package rowset

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"celldexport/diffpage"
	"celldexport/diffpage/schema"
	"celldexport/envelope"
	"celldexport/internal/ledger"
)

// base reads a state the way a *diffpage.Base offers it.
type base struct{ *state }

func (b base) Schema() *schema.Schema { return b.schema }

func (b base) Scan(name string, v diffpage.Visitor) error {
	return (&fake{after: b.state}).Scan(name, v)
}

// rebase runs a re-base of the tape's database at the next position.
func (s *tape) rebase(origin envelope.Origin) []string {
	s.t.Helper()
	return s.rebaseOf(ImageOf(base{s.d.capture()}), origin)
}

func (s *tape) rebaseOf(img Image, origin envelope.Origin) []string {
	s.t.Helper()
	s.txid++
	p, err := NewPlan(img.After(), nil, s.gens, mark(4, s.txid), mark(4, s.txid-1), s.opt)
	if err != nil {
		s.t.Fatal(err)
	}
	env := testEnvelope(s.txid)
	env.Origin = origin
	var lines []string
	s.stats, err = p.Snapshot(env, img, SnapshotID("base", env, 0), func(e *envelope.Encoded) error {
		lines = append(lines, string(e.AppendJSON(nil)))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(s.gens, p.Ledger())
	return lines
}

func TestRebase(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(k TEXT PRIMARY KEY, v)`, `CREATE TABLE e(a)`, `CREATE TABLE gone(a)`,
		`CREATE VIRTUAL TABLE docs USING fts5(body)`, `CREATE TABLE no(rowid, _rowid_, oid)`, `CREATE TABLE bad(k PRIMARY KEY) WITHOUT ROWID`)
	s.opt.MaxRecordBytes = 600
	s.unit()
	s.d.exec(`DROP TABLE gone`, `ALTER TABLE e ADD COLUMN b`, `INSERT INTO t VALUES ('b', 2), ('a', 1), (NULL, 3)`,
		`INSERT INTO t VALUES ('c', '`+strings.Repeat("x", 600)+`')`, `INSERT INTO bad VALUES (CAST(x'ff' AS TEXT))`, `INSERT INTO no VALUES (1,2,3)`)
	got := s.short(s.rebase(envelope.Live))
	kinds := make([]string, 0, len(got))
	for _, line := range got {
		r, err := envelope.DecodeBody(envelope.Envelope{Fragment: 1, Fragments: 1, Origin: envelope.Live}, kindOf(line), []byte(line[strings.Index(line, "{"):]))
		if err != nil {
			t.Fatal(err)
		}
		origin, _, _ := strings.Cut(line, " ")
		name := ""
		switch b := r.Body.(type) {
		case *envelope.Schema:
			name = fmt.Sprint(b.Table, b.Generation, b.Dropped, b.Unsupported)
		case *envelope.SnapshotRows:
			name = fmt.Sprint(b.Table, b.Generation, " ", len(b.Changes))
		case *envelope.SnapshotEnd:
			name = fmt.Sprint(b.SnapshotID, b.Scope, b.Tables, b.Records)
		}
		kinds = append(kinds, origin+" "+name)
	}
	check(t, kinds,
		"snapshot gone1 true false",
		"snapshot bad1 false false", "snapshot docs1 false true", "snapshot e2 false false", "snapshot no1 false false", "snapshot t1 false false",
		"snapshot e2 0", "snapshot t1 2", "snapshot t1 1",
		"snapshot base-1795000000002-2-0stream[{e 2} {t 1}] 2")
	if s.stats.Oversized != 1 || s.stats.NullKeys != 1 || s.stats.Snapshot != 3 || len(s.stats.Described) != 5 || len(s.stats.Bulk) != 0 {
		t.Errorf("stats %+v", s.stats)
	}
	if got := fmt.Sprint(s.stats.Incomplete); got != "[{bad 1} {no 1}]" || len(s.stats.Reasons) != 2 {
		t.Errorf("incomplete %s because of %v, want bad and no", got, s.stats.Reasons)
	}
	if s.stats.Records != 9 { // 6 schemas, 2 snapshots, the end
		t.Errorf("%d records, want 9", s.stats.Records)
	}
	for _, line := range s.rebase(envelope.Repair) {
		if !strings.Contains(line, `"origin":"repair"`) {
			t.Errorf("%s: want the origin of the envelope", line)
		}
	}
}

func kindOf(line string) envelope.Kind {
	_, rest, _ := strings.Cut(line, `"kind":"`)
	kind, _, _ := strings.Cut(rest, `"`)
	return envelope.Kind(kind)
}

func TestErrorsEndTheUnit(t *testing.T) {
	s := newTape(t, `CREATE TABLE t(a)`, `INSERT INTO t VALUES (1)`, `CREATE TABLE k(a PRIMARY KEY)`, `INSERT INTO k VALUES (1)`)
	broken := errors.New("page 7 is broken")
	src := &fake{before: empty(), after: s.d.capture()}
	s.txid++
	plan := s.plan(src)
	out := func(*envelope.Encoded) error { return nil }
	for _, name := range []string{"t", "k"} {
		src.after.rows[name][0].fail = broken
		if _, err := plan.Encode(testEnvelope(1), src, nil, out); !errors.Is(err, broken) || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("a broken row of %s: %v, want the error and the table", name, err)
		}
		src.after.rows[name][0].fail = nil
	}
	full := errors.New("disk full")
	for n := range 5 {
		if _, err := plan.Encode(testEnvelope(1), src, nil, func(*envelope.Encoded) error {
			if n--; n < 0 {
				return full
			}
			return nil
		}); !errors.Is(err, full) {
			t.Errorf("out failed: %v, want its error", err)
		}
	}
	noPlace := s.opt
	noPlace.MemoryBytes, noPlace.TempDir = 1, filepath.Join(t.TempDir(), "missing")
	nowhere, err := NewPlan(src.After(), src.Before(), nil, mark(4, 1), mark(4, 0), noPlace)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{`INSERT INTO t VALUES (2), (3)`, `INSERT INTO k VALUES (2), (3)`} {
		s.d.exec(change)
		if _, err := nowhere.Encode(testEnvelope(1), &fake{before: empty(), after: s.d.capture()}, nil, out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("rows without a place to spill: %v, want an error that says so", err)
		}
	}
	src.after.rows["t"] = append(src.after.rows["t"], src.after.rows["t"][0])
	if _, err := plan.Encode(testEnvelope(1), src, nil, out); err == nil {
		t.Error("rows out of order are taken")
	}
}

// Two rows of one key can only come from a broken index; nobody can say which
// one counts.
func TestDuplicateKeysAreBulk(t *testing.T) {
	s := newTape(t, `CREATE TABLE k(a PRIMARY KEY)`, `INSERT INTO k VALUES (1)`)
	after := s.d.capture()
	after.rows["k"] = append(after.rows["k"], after.rows["k"][0])
	s.txid++
	src := &fake{before: empty(), after: after}
	got := s.short(s.encode(s.plan(src), src))
	if len(got) != 2 || got[1] != bulk("k") {
		t.Errorf("%v, want a schema and a bulk", got)
	}
}

func TestMetadata(t *testing.T) {
	str := func(s string) *string { return &s }
	num := func(n uint64) *uint64 { return &n }
	for _, tc := range []struct {
		name        string
		statements  []string
		cell        *string
		incarnation *uint64
	}{
		{"no table", nil, nil, nil},
		{"old table", []string{`CREATE TABLE _cf_METADATA(scope PRIMARY KEY, actor_name)`, `INSERT INTO _cf_METADATA VALUES ('Shelf:a17', 'aisle 9'), ('Shelf:other', 'no')`}, str("aisle 9"), nil},
		{"whole", []string{`CREATE TABLE _cf_METADATA(scope TEXT PRIMARY KEY, actor_name TEXT, incarnation INTEGER)`, `INSERT INTO _cf_METADATA VALUES ('Shelf:a17', NULL, 5497558139000)`}, nil, num(5497558139000)},
		{"odd values", []string{`PRAGMA encoding = 'UTF-16be'`, `CREATE TABLE _cf_METADATA(scope, actor_name, incarnation)`, `INSERT INTO _cf_METADATA VALUES (1, 'no', 1), (NULL, 'no', 1), ('Shelf:a17', x'00', 'x')`}, nil, nil},
		{"other row", []string{`CREATE TABLE _cf_METADATA(scope, actor_name)`, `INSERT INTO _cf_METADATA VALUES ('Shelf:other', 'no')`}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			img := ImageOf(base{newDatabase(t, tc.statements...).capture()})
			cell, incarnation, err := Metadata(img, "Shelf:a17")
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(deref(cell), deref(incarnation)) != fmt.Sprint(deref(tc.cell), deref(tc.incarnation)) {
				t.Errorf("name %v, incarnation %v; want %v, %v", deref(cell), deref(incarnation), deref(tc.cell), deref(tc.incarnation))
			}
		})
	}
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func TestExportRegistry(t *testing.T) {
	d := newDatabase(t, `CREATE TABLE t(a)`, `CREATE TABLE _cf_KV(scope, k, v)`,
		`CREATE TABLE _cf_EXPORT(name TEXT PRIMARY KEY, generation INTEGER, schema_sql TEXT, rootpage INTEGER)`,
		`INSERT INTO _cf_EXPORT VALUES ('sqlite_schema', 9, NULL, 1), ('t', 4, 'CREATE TABLE t(a)', 2), ('gone', 2, NULL, 0), ('_cf_KV', 3, 'CREATE TABLE old', 3), ('bad', 0, 'x', 1), (NULL, 1, 'x', 1)`)
	img := ImageOf(base{d.capture()})
	registry, err := ExportRegistry(img)
	if err != nil || len(registry) != 3 {
		t.Fatalf("registry %v, %v; want three tables", registry, err)
	}
	gens := Seed(registry, mark(4, 1))
	p, err := NewPlan(img.After(), nil, gens, mark(4, 1), ledger.Mark{}, planOptions)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, tp := range p.tables {
		got[tp.Table] = tp.Generation
	}
	// kv has another text than the registry knows, so its next one opens.
	if fmt.Sprint(got) != "map[kv:4 t:4]" || len(p.closed) != 0 {
		t.Errorf("generations %v, closed %v", got, p.closed)
	}
	if none, err := ExportRegistry(ImageOf(base{empty()})); none != nil || err != nil {
		t.Errorf("a cell without registry: %v, %v", none, err)
	}
	d = newDatabase(t, `CREATE TABLE _cf_EXPORT(name)`)
	broken := d.capture()
	broken.schema.ByName("_cf_EXPORT").Unreadable = "too new"
	if _, err := ExportRegistry(ImageOf(base{broken})); err == nil || !strings.Contains(err.Error(), "too new") {
		t.Errorf("an unreadable registry: %v, want an error", err)
	}
}

// A drop that the ledger holds may never have been carried, when the unit it
// belongs to was lost with the state: a re-base that does not know says it
// again, for a name that the settings deny only when it was shown before.
func TestRebaseSaysEndsAgain(t *testing.T) {
	s := newTape(t, `CREATE TABLE stays(a)`, `CREATE TABLE gone(a)`, `CREATE TABLE shown(a)`, `CREATE TABLE hidden(a)`)
	s.opt.Deny = func(name string) bool { return name == "hidden" }
	s.unit()
	s.opt.Deny = func(name string) bool { return name == "hidden" || name == "shown" }
	s.d.exec(`DROP TABLE gone`)
	s.unit()
	ends := func(repeat bool) string {
		s.opt.RepeatEnds = repeat
		var names []string
		for _, line := range s.rebase(envelope.Live) {
			if strings.Contains(line, `"dropped":true`) {
				_, rest, _ := strings.Cut(line, `"table":"`)
				name, _, _ := strings.Cut(rest, `"`)
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	for repeat, want := range map[bool]string{false: "", true: "gone shown"} {
		if got := ends(repeat); got != want {
			t.Errorf("repeating %v it says that %q ended, want %q", repeat, got, want)
		}
	}
}
