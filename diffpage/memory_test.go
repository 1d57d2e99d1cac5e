package diffpage

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// allocated is how many bytes f asks for, whatever becomes of them: a bound of
// what it ever holds. Tests that run side by side would be counted too.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// processorTime is what f takes of it, whatever else the machine is doing.
func processorTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	now := func() time.Duration {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			t.Fatal(err)
		}
		return time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	start := now()
	f()
	return now() - start
}

// vacuum is the diff of a VACUUM that moved every row of n, and what it took.
func vacuum(t *testing.T, n int, memory int64) (pages int, bytes uint64) {
	t.Helper()
	src := newSource(t, "PRAGMA page_size=4096")
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k PRIMARY KEY, x) WITHOUT ROWID",
		insert("t", n, "i, hex(randomblob(i%50))"), insert("w", n, "'k'||i, randomblob(i%1500)"), "DELETE FROM t WHERE id%3=0", "DELETE FROM w WHERE k LIKE 'k1%'")
	f := newFollower(t, src)
	WithMemory(memory)(f.base)
	WithTempDir(t.TempDir())(f.base)
	take := func() (c *Change) {
		images, commit := src.unit()
		bytes = allocated(func() {
			var err error
			if c, err = f.base.Diff(images, commit); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"t", "w"} {
				calls := 0
				if err := c.Rows(name, func(Op, Row, Row) error { calls++; return nil }); err != nil {
					t.Fatal(err)
				}
				if (len(f.base.Schema().Tables) == 0) != (calls > 0) {
					t.Errorf("%d changes of %s", calls, name)
				}
			}
		})
		return c
	}
	if err := take().Accept(); err != nil {
		t.Fatal(err)
	}
	was := f.base.shadow.Commit()
	src.exec("VACUUM")
	c := take()
	pages = c.NumPages()
	if pages < int(c.Commit())*9/10 || c.Commit() >= was {
		t.Errorf("the VACUUM moved %d of %d pages, there were %d", pages, c.Commit(), was)
	}
	if err := errors.Join(c.Accept(), f.sh.Flush()); err != nil {
		t.Fatal(err)
	}
	return pages, bytes
}

// TestVacuumIsFlat is case 13: the diff of a VACUUM, which writes every page and
// changes no row, takes its budget, and of every page and row with overflow some
// bytes in lists that double as they grow, but keeps no pages.
func TestVacuumIsFlat(t *testing.T) {
	const memory = 256 << 10
	rows := 16000
	if testing.Short() {
		rows = 4000
	}
	few, fewBytes := vacuum(t, 2000, memory)
	many, manyBytes := vacuum(t, rows, memory)
	perPage := (int64(manyBytes) - int64(fewBytes)) / int64(many-few)
	t.Logf("%d bytes for %d pages, %d for %d: %d per page", fewBytes, few, manyBytes, many, perPage)
	if fewBytes > 8*memory || perPage > 1000 {
		t.Errorf("%d bytes, and %d more per page of 4096, with a budget of %d", fewBytes, perPage, memory)
	}
}
