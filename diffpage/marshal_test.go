package diffpage

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"testing"
)

// TestOwners keeps an owner map and opens it again: a base with it must go on
// like the one it came from, and every map that does not fit must be refused.
func TestOwners(t *testing.T) {
	f := hostile(t)
	src := f.src
	src.exec("DROP TABLE t", `CREATE TABLE ""(x)`, `INSERT INTO "" VALUES(1)`)
	f.step()
	kept, err := f.base.MarshalOwners("7/12")
	if err != nil {
		t.Fatal(err)
	}
	base, err := OpenBase(f.sh, "7/12", kept, WithShared(f.shared), WithMemory(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(base.owners, f.base.owners) {
		t.Error("the owner map changed")
	}
	for name, bad := range map[string]struct {
		tag  string
		data []byte
	}{
		"another tag":    {"7/13", kept},
		"cut":            {"7/12", kept[:len(kept)-9]},
		"empty":          {"7/12", nil},
		"a flipped bit":  {"7/12", flipped(kept, len(kept)/2)},
		"no map":         {"7/12", sealed([]byte("something else entirely"))},
		"cut and sealed": {"7/12", sealed(kept[:len(kept)-sha256.Size-8])},
		"grown":          {"7/12", sealed(append(slices.Clone(kept[:len(kept)-sha256.Size]), 0))},
	} {
		if _, err := OpenBase(f.sh, bad.tag, bad.data); !errors.Is(err, ErrStale) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	f.base = base
	src.exec("UPDATE u SET b=b||'x' WHERE id>40", `DELETE FROM ""`, "CREATE TABLE later(x)")
	f.step()
	if _, err := OpenBase(f.sh, "7/12", kept); !errors.Is(err, ErrStale) {
		t.Errorf("a map of an older state: error %v", err)
	}
}

// TestOwnersOfMovedRoot: the shape is the same, the tables are not.
func TestOwnersOfMovedRoot(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(x)", "CREATE TABLE u(x)")
	f.step()
	kept, err := f.base.MarshalOwners("")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"UPDATE sqlite_schema SET rootpage=5-rootpage", "UPDATE sqlite_schema SET name='v',tbl_name='v',sql='CREATE TABLE v(x)' WHERE name='u'", "DELETE FROM sqlite_schema WHERE name='v'"} {
		src.exec("PRAGMA writable_schema=ON", q, "PRAGMA writable_schema=RESET")
		f.step()
		if _, err := OpenBase(f.sh, "", kept); !errors.Is(err, ErrStale) {
			t.Errorf("%s: error %v", q, err)
		}
	}
}

func flipped(b []byte, i int) []byte {
	b = slices.Clone(b)
	b[i] ^= 1
	return b
}

func sealed(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(slices.Clone(b), sum[:]...)
}

// TestStaleChange: a change serves until it is accepted, closed or overtaken.
func TestStaleChange(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	images, commit := src.unit()
	src.last = nil
	again, _ := src.unit()
	accepted, err := f.base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	overtaken, err := f.base.Diff(again, commit)
	if err != nil {
		t.Fatal(err)
	}
	if err := accepted.Accept(); err != nil {
		t.Fatal(err)
	}
	closed, err := f.base.Diff(first(unitOf(t, nil, src.last)), commit)
	if err != nil {
		t.Fatal(err)
	}
	if closed.NumPages() != 0 || closed.Touched("t") {
		t.Error("the same state again is a change")
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Change{"accepted": accepted, "overtaken": overtaken, "closed": closed} {
		nothing := func(Op, Row, Row) error { return errors.New("visited") }
		for _, err := range []error{c.Rows("t", nothing), c.Scan("t", nothing), c.Accept(), c.Pages(func(uint32, []byte) error { return nil })} {
			if !errors.Is(err, ErrStale) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

// TestVisitorError: an error of the visitor ends every walk and comes back.
func TestVisitorError(t *testing.T) {
	f := hostile(t)
	f.src.exec("UPDATE t SET b=1", "UPDATE w SET x=1", "DROP TABLE u", "CREATE TABLE v(x)", "INSERT INTO v VALUES(1)", "DELETE FROM t WHERE id=1", "INSERT INTO w VALUES(-1,0)")
	images, commit := f.src.unit()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := errors.New("stop")
	for _, name := range []string{"t", "w", "u", "v"} {
		calls := 0
		visit := func(Op, Row, Row) error { calls++; return stop }
		if err := c.Rows(name, visit); !errors.Is(err, stop) || calls != 1 {
			t.Errorf("rows of %s: %d calls, error %v", name, calls, err)
		}
	}
	if err := c.Scan("t", func(Op, Row, Row) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("scan: error %v", err)
	}
}

// TestKeyJoinOnDisk joins with so little memory that keys go to files.
func TestKeyJoinOnDisk(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=1024")
	f := newFollower(t, src)
	src.exec("CREATE TABLE w(k TEXT PRIMARY KEY, x) WITHOUT ROWID", insert("w", 20000, "'key'||i, i"))
	WithMemory(1 << 16)(f.base)
	dir := t.TempDir()
	WithTempDir(dir)(f.base)
	f.step()
	src.exec("UPDATE w SET x=x+1 WHERE x%5=0", "DELETE FROM w WHERE x%7=0", "UPDATE w SET k='other'||k WHERE x%11=0", "VACUUM")
	f.step()
}

func rowsOf(t *testing.T, side *pairs) int {
	n := 0
	err := side.each(func(p pair) error {
		s := spanOf(p)
		n += int(s.hi - s.lo)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKeyJoinCollisions joins rows whose hashes say nothing, or the wrong
// thing: keys decide all the same.
func TestKeyJoinCollisions(t *testing.T) {
	f := hostile(t)
	f.src.exec("UPDATE w SET x='new' WHERE k%50=0", "DELETE FROM w WHERE k%60=1", "INSERT INTO w VALUES(-1,1),(-2,2)")
	images, commit := f.src.unit()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := make(map[string]bool)
	for _, e := range rows(t, c, "w") {
		want[e.String()] = true
	}
	tab := c.After().ByName("w")
	for _, hashes := range []uint64{1, 1 << 60} {
		seen := make(map[string]bool)
		updates, calls := 0, uint64(0)
		j, err := beginJoin(c.d, c.table("w"), c.Before().ByName("w"), tab, func(op Op, before, after Row) error {
			e := event{op: op}
			var keys [2]string
			var err error
			if before != nil {
				keys[0], e.before, err = rowText(tab, before)
				e.key = keys[0]
			}
			if after != nil && err == nil {
				keys[1], e.after, err = rowText(tab, after)
				e.key = keys[1]
			}
			if op == Update {
				if updates++; keys[0] != keys[1] {
					t.Errorf("an update from key %s to %s", keys[0], keys[1])
				}
			}
			seen[e.String()] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		k := &keyJoin{join: j, rows: pairs{file: new(spillFile)}, found: pairs{file: new(spillFile)}, hash: func(key []byte) uint64 {
			// The n-th row of either side has the n-th hash.
			n := calls
			if olds := uint64(rowsOf(t, &j.t.oldSide)); n >= olds {
				n -= olds
			}
			calls++
			return n % hashes
		}}
		if err := k.run(); err != nil {
			t.Fatal(err)
		}
		if hashes == 1 && !maps.Equal(seen, want) {
			t.Errorf("one hash for all: got %v, want %v", seen, want)
		}
		if hashes > 1 && updates > 0 && len(seen) < len(want) {
			t.Errorf("a hash of its own for each: %d events, %d at least", len(seen), len(want))
		}
	}
}
