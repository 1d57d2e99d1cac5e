package diffpage

import (
	"os"
	"testing"
)

// TestSidesInFiles follows units whose rows and chains do not fit the least of
// memory, under all oracles, and sees that files were used and none is left.
func TestSidesInFiles(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	dir := t.TempDir()
	WithMemory(1)(f.base)
	WithTempDir(dir)(f.base)
	const n = 6000
	units := []struct {
		sql     []string
		t, w, o int
	}{
		{[]string{"CREATE TABLE t(id INTEGER PRIMARY KEY, n, b)", "CREATE TABLE w(k PRIMARY KEY, n, x) WITHOUT ROWID", "CREATE TABLE o(id INTEGER PRIMARY KEY, n, b)"}, 0, 0, 0},
		{tx(insert("t", n, "i, 0, hex(randomblob(60))"), insert("w", n, "'k'||(i*7919%10007), 0, hex(randomblob(40))"), insert("o", n/2, "i, 0, hex(randomblob(400))")), n, n, n / 2},
		{tx("UPDATE t SET n=1", "UPDATE w SET n=1", "UPDATE o SET n=1"), n, n, n / 2},
		{[]string{"VACUUM"}, 0, 0, 0},
		{tx("DELETE FROM t", "DELETE FROM w", "DELETE FROM o"), n, n, n / 2},
	}
	for i, u := range units {
		src.exec(u.sql...)
		images, commit := src.unit()
		c, err := f.base.Diff(images, commit)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && c.d.file.file == nil {
			t.Errorf("unit %d: no file is used", i)
		}
		for range 2 { // rows can be shown again
			for name, want := range map[string]int{"t": u.t, "w": u.w, "o": u.o} {
				if i > 0 {
					if got := len(rows(t, c, name)); got != want {
						t.Errorf("unit %d: %d changes of %s, want %d", i, got, name, want)
					}
				}
			}
		}
		c.Release()
		f.take(images, commit, src.dump)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v, %v", left, err)
	}
}
