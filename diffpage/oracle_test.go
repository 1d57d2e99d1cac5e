package diffpage

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"testing"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// rowText is a row in the form of a dump.
func rowText(t *schema.Table, r Row) (key, vals string, err error) {
	var all []byte
	ends := make([]int, len(t.Columns))
	for i := range t.Columns {
		c, err := r.Cell(i)
		if err != nil {
			return "", "", err
		}
		all, ends[i] = appendCell(all, i, c)
	}
	key = strconv.FormatInt(r.Rowid(), 10)
	if t.WithoutRowid {
		key = keyOf(t, all, ends)
	}
	return key, string(all), nil
}

// follower is a base that follows a source and checks every unit against it.
type follower struct {
	t      testing.TB
	src    *source
	sh     *shadow.Shadow
	base   *Base
	dumps  map[string]tableDump
	events int // that units of comparable columns showed
	// changes are the true ones: what the dumps differ in.
	changes int
	pages   int // that the last unit really changed
	shared  *Shared
	// replica and session are further oracles, nil when not asked for.
	replica *replica
	session *recorder
	// slow is a base that gets several units as one, nil when not asked for.
	slow    *follower
	seen    []byte // the file as a slow base was last given it
	folds   int    // units that it got
	lies    string // a table whose first event is hidden
	patient bool   // tables that cannot be read are passed over
}

func newFollower(t testing.TB, src *source) *follower {
	t.Helper()
	sh, err := shadow.Create(filepath.Join(t.TempDir(), "shadow.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sh.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &follower{t: t, src: src, sh: sh, shared: new(Shared)}
	if f.base, err = NewBase(sh, WithShared(f.shared)); err != nil {
		t.Fatal(err)
	}
	return f
}

// event is one row change in text form.
type event struct {
	op                 Op
	key, before, after string
}

func (e event) String() string {
	return fmt.Sprintf("%c %s [%s] [%s]", "IUD"[e.op], e.key, e.before, e.after)
}

// rows collects the row changes of a table.
func rows(t testing.TB, c *Change, name string) []event {
	t.Helper()
	var out []event
	was, is := c.Before().ByName(name), c.After().ByName(name)
	last := int64(math.MinInt64)
	err := c.Rows(name, func(op Op, before, after Row) error {
		e := event{op: op}
		var err error
		var rowid int64
		var key string
		if before != nil {
			rowid = before.Rowid()
			if e.key, e.before, err = rowText(was, before); err != nil {
				return err
			}
		}
		if after != nil {
			rowid = after.Rowid()
			if key, e.after, err = rowText(is, after); err != nil {
				return err
			}
			if op == Update && key != e.key {
				// One key to SQLite and two to a dump: 1 that became 1.0.
				out = append(out, event{Delete, e.key, e.before, ""})
				e.op, e.before = Insert, ""
			}
			e.key = key
		}
		if was != nil && is != nil && !was.WithoutRowid && !is.WithoutRowid {
			if len(out) > 0 && rowid <= last {
				t.Errorf("table %s: rowid %d after %d", name, rowid, last)
			}
			last = rowid
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		t.Fatalf("rows of %s: %v", name, err)
	}
	return out
}

// step diffs the next unit, checks it by all oracles, and accepts it.
func (f *follower) step() map[string][]event {
	f.t.Helper()
	images, commit := f.src.unit()
	return f.take(images, commit, f.src.dump)
}

// take is step with the unit given, and with what reads the tables.
func (f *follower) take(images *shadow.Images, commit uint32, dump func(*schema.Schema) map[string]tableDump) map[string][]event {
	f.t.Helper()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		f.t.Fatalf("diff: %v", err)
	}
	defer c.Close()
	f.pages = c.NumPages()
	after := dump(c.After())
	events := make(map[string][]event)
	names := map[string]bool{}
	for _, sc := range []*schema.Schema{c.Before(), c.After()} {
		for _, t := range sc.Tables {
			if t.Kind != schema.Internal {
				names[t.Name] = true
			}
		}
	}
	if f.patient {
		f.passOver(c, names)
	}
	for name := range names {
		was, is := c.Before().ByName(name), c.After().ByName(name)
		if got := rows(f.t, c, name); len(got) > 0 {
			if f.lies != "" && name == f.lies {
				got = got[1:]
			}
			events[name] = got
			if !c.Touched(name) {
				f.t.Errorf("table %s has changes but was not touched", name)
			}
		}
		if is != nil && c.Touched(name) {
			checkEvents(f.t, name, after[name], f.scanned(is, c.Scan), nil)
		}
		if was != nil && is != nil && !comparable(was, is) {
			continue
		}
		f.events += len(events[name])
		f.changes += checkEvents(f.t, name, f.dumps[name], after[name], events[name])
	}
	f.repeat(c)
	if f.replica != nil {
		f.replica.apply(f.t, c, after)
	}
	if f.session != nil {
		f.session.compare(f.t, c, f.dumps)
	}
	if err := c.Accept(); err != nil {
		f.t.Fatal(err)
	}
	f.dumps = after
	f.check()
	return events
}

// comparable reports whether rows of both sides are of the same columns, so
// that their dumps can be compared. Which values a column refuses is not a
// matter of its rows.
func comparable(was, is *schema.Table) bool {
	if was.SQL == is.SQL {
		return true
	}
	loose := func(t *schema.Table) []schema.Column {
		columns := slices.Clone(t.Columns)
		for i := range columns {
			columns[i].NotNull = false
		}
		return columns
	}
	return was.WithoutRowid == is.WithoutRowid && slices.Equal(was.Key, is.Key) && reflect.DeepEqual(loose(was), loose(is))
}

// unit is step for a session that records unit by unit.
func (f *follower) unit() {
	f.t.Helper()
	if f.session != nil {
		f.session.end(f.t)
		defer f.session.begin(f.t)
	}
	f.step()
}

// passOver takes out the tables whose columns are not known on one side.
func (f *follower) passOver(c *Change, names map[string]bool) {
	for _, sc := range []*schema.Schema{c.Before(), c.After()} {
		for _, t := range sc.Tables {
			if t.Unreadable != "" {
				delete(names, t.Name)
			}
		}
	}
}

// scanned is a table as a scan shows it.
func (f *follower) scanned(t *schema.Table, scan func(string, Visitor) error) tableDump {
	f.t.Helper()
	got := make(tableDump)
	if t.Kind == schema.View || t.Kind == schema.Virtual {
		return got
	}
	err := scan(t.Name, func(op Op, _, after Row) error {
		key, vals, err := rowText(t, after)
		got[key] = vals
		return err
	})
	if err != nil {
		f.t.Fatalf("scan %s: %v", t.Name, err)
	}
	return got
}

// repeat checks that the pages of a change alone lead to the state after it.
func (f *follower) repeat(c *Change) {
	f.t.Helper()
	buf := make([]byte, c.PageSize())
	last := uint32(0)
	err := c.Pages(func(pgno uint32, data []byte) error {
		at := int(pgno-1) * len(data)
		if pgno <= last || string(f.src.last[at:at+len(data)]) != string(data) {
			return fmt.Errorf("page %d after %d is not the source's", pgno, last)
		}
		if pgno <= f.sh.Commit() && f.sh.PageSize() == c.PageSize() {
			was, err := f.sh.Page(pgno, buf)
			if err != nil {
				return err
			}
			if string(was) == string(data) {
				return fmt.Errorf("page %d did not change", pgno)
			}
		}
		last = pgno
		return nil
	})
	if err != nil {
		f.t.Fatalf("pages of a change: %v", err)
	}
}

// check compares the accepted state with the source and a rebuilt owner map.
func (f *follower) check() {
	f.t.Helper()
	for name, want := range f.dumps {
		checkEvents(f.t, name, want, f.scanned(f.base.Schema().ByName(name), f.base.Scan), nil)
	}
	fresh, err := NewBase(f.sh, WithShared(f.shared))
	if err != nil {
		f.t.Fatalf("rebuild: %v", err)
	}
	if len(fresh.owners) != len(f.base.owners) {
		f.t.Fatalf("owner map has %d pages, rebuilt %d", len(f.base.owners), len(fresh.owners))
	}
	for pgno := range fresh.owners {
		w, g := fresh.owners[pgno], f.base.owners[pgno]
		same := w.role() == g.role() && w.parent() == g.parent()
		if same && w.role() != roleNone {
			same = fresh.slots.names[w.slot()] == f.base.slots.names[g.slot()]
		}
		if !same {
			f.t.Errorf("page %d: owner %d of %s under %d, rebuilt: %d of %s under %d", pgno,
				g.role(), f.base.slots.names[g.slot()], g.parent(), w.role(), fresh.slots.names[w.slot()], w.parent())
		}
	}
}

// checkEvents compares the events of a table with the difference of dumps,
// and says how many they ought to be.
func checkEvents(t testing.TB, name string, was, is tableDump, got []event) int {
	t.Helper()
	want := make(map[string]event)
	for key, b := range was {
		if a, ok := is[key]; !ok {
			want[key] = event{Delete, key, b, ""}
		} else if a != b {
			want[key] = event{Update, key, b, a}
		}
	}
	for key, a := range is {
		if _, ok := was[key]; !ok {
			want[key] = event{Insert, key, "", a}
		}
	}
	seen := make(map[string]bool)
	for _, e := range got {
		if w, ok := want[e.key]; !ok || w != e || seen[e.key] {
			t.Errorf("table %s: got %v, want %v (seen: %v)", name, cut(e.String()), cut(w.String()), seen[e.key])
		}
		seen[e.key] = true
	}
	if len(seen) != len(want) {
		var missing []string
		for key, e := range want {
			if !seen[key] {
				missing = append(missing, cut(e.String()))
			}
		}
		sort.Strings(missing)
		t.Errorf("table %s: %d of %d changes missing, first: %s", name, len(missing), len(want), missing[0])
	}
	return len(want)
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
