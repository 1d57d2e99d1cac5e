package diffpage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage/schema"
)

// corpusScript is one of the SQL scripts that SQLite is fuzzed with.
type corpusScript struct {
	name, sql string
}

// corpusScripts reads the scripts of every file: each step-th.
func corpusScripts(t *testing.T, step int) (scripts []corpusScript) {
	t.Helper()
	dir := corpus(t)
	for _, file := range []string{"fuzzdata1.db", "fuzzdata2.db", "fuzzdata4.db", "fuzzdata5.db", "fuzzdata6.db", "fuzzdata8.db"} {
		conn, err := sqlite.OpenConn("file:"+filepath.Join(dir, file)+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = sqlitex.ExecuteTransient(conn, "SELECT sqlid, CAST(sqltext AS BLOB) FROM xsql", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
			if n++; n%step == 0 {
				b := make([]byte, st.ColumnLen(1))
				st.ColumnBytes(1, b)
				scripts = append(scripts, corpusScript{fmt.Sprintf("%s, script %d", file, st.ColumnInt64(0)), string(b)})
			}
			return nil
		}})
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return scripts
}

// scriptScore is what the scripts came to.
type scriptScore struct{ scripts, units, events, changes, broken atomic.Int64 }

// TestScripts runs the SQL scripts that SQLite is fuzzed with and compares
// every commit with dumps and a new owner map. A script may break its own
// database (writable_schema can): what follows is then not compared, but has
// to be refused in order. A normal run takes a sample, EXPORTD_SOAK_UNITS all.
func TestScripts(t *testing.T) {
	step := 41
	switch {
	case os.Getenv("EXPORTD_SOAK_UNITS") != "":
		step = 1
	case testing.Short():
		step = 400
	}
	scripts := corpusScripts(t, step)
	total := new(scriptScore)
	const lot = 64
	t.Run("lots", func(t *testing.T) {
		for at := 0; at < len(scripts); at += lot {
			t.Run(fmt.Sprint(at/lot), func(t *testing.T) {
				t.Parallel()
				for _, s := range scripts[at:min(at+lot, len(scripts))] {
					total.scripts.Add(1)
					runScript(t, s, total)
				}
			})
		}
	})
	t.Logf("%d scripts, %d commits, %d row events, %d true net changes; %d broke their database",
		total.scripts.Load(), total.units.Load(), total.events.Load(), total.changes.Load(), total.broken.Load())
	if total.events.Load() == 0 || total.events.Load() != total.changes.Load() {
		t.Error("the oracle did not see what it is to see")
	}
}

// runScript follows one script.
func runScript(t *testing.T, s corpusScript, total *scriptScore) {
	t.Helper()
	broken := false
	said := attempt(t, func(t testing.TB) {
		src := newSource(t, "PRAGMA page_size=512")
		f := newFollower(t, src)
		f.patient, src.patient = true, true
		rest := tame(src.conn, s.sql)
		for range 200 { // some say little in thousands of statements
			n := scriptStatement(src.conn, rest)
			if n == 0 {
				break
			}
			rest = rest[n:]
			if !src.conn.AutocommitEnabled() || !written(t, src) {
				continue
			}
			if broken = !f.stepAside(t); broken {
				break
			}
			total.units.Add(1)
			if t.Failed() {
				return
			}
		}
		if broken {
			brokenUnit(t, f)
			total.broken.Add(1)
		}
		total.events.Add(int64(f.events))
		total.changes.Add(int64(f.changes))
	})
	if len(said) > 0 {
		t.Errorf("%s: %s\n%q", s.name, strings.Join(said[:min(4, len(said))], "\n"), cut(s.sql))
	}
}

// outside are the words by which a script would leave its database, or take
// it out of the form that is followed here.
var outside = regexp.MustCompile(`(?i)\b(attach|into\s+file|vacuum\s+into|journal_mode|locking_mode|page_size|max_page_count|hard_heap_limit|soft_heap_limit|threads|synchronous|load_extension)\b`)

// tame keeps a script to its own database and to what is worth its time.
func tame(conn *sqlite.Conn, sql string) string {
	conn.Limit(sqlite.LimitLength, 200_000)
	conn.Limit(sqlite.LimitVDBEOp, 25_000)
	return outside.ReplaceAllString(sql, "no_$0")
}

// scriptStatement runs the first statement of sql, whatever comes of it, and
// says how long it is; 0 when there is no other.
func scriptStatement(conn *sqlite.Conn, sql string) int {
	stmt, trailing, err := conn.PrepareTransient(sql)
	if err != nil {
		return strings.IndexByte(sql, ';') + 1 // as a shell would
	}
	if stmt == nil {
		return len(sql) - trailing
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	conn.SetInterrupt(ctx.Done())
	defer conn.SetInterrupt(nil)
	for range 2000 {
		if more, err := stmt.Step(); err != nil || !more {
			break
		}
	}
	// What it complains about was said by Step.
	_ = stmt.Finalize()
	return len(sql) - trailing
}

// written says whether anything was committed since the last checkpoint.
func written(t testing.TB, src *source) bool {
	t.Helper()
	info, err := os.Stat(src.path + "-wal")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil && info.Size() > 0
}

// stepAside is step with another connection, which sees the schema that is
// stored and not what a script with writable_schema has in memory; false when
// SQLite says that the database is broken.
func (f *follower) stepAside(t testing.TB) bool {
	t.Helper()
	conn, err := sqlite.OpenConn(f.src.path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	own := f.src.conn
	defer func() {
		f.src.conn = own
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	f.src.conn = conn
	if !f.src.try("PRAGMA synchronous=OFF") || !sound(conn) {
		return false
	}
	f.step()
	return true
}

// sound asks SQLite whether the database is one.
func sound(conn *sqlite.Conn) bool {
	ok := false
	err := sqlitex.ExecuteTransient(conn, "PRAGMA main.integrity_check(1)", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
		ok = st.ColumnText(0) == "ok"
		return nil
	}})
	return err == nil && ok
}

// brokenUnit gives the diff what a script broke: it is refused as corrupt and
// moves nothing, or is as good to SQLite as to us where it can be compared.
func brokenUnit(t testing.TB, f *follower) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(f.src.conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil); err != nil {
		return
	}
	file, err := os.ReadFile(f.src.path)
	if err != nil {
		t.Fatal(err)
	}
	images, commit := unitOf(t, f.src.last, file)
	c, err := f.base.Diff(images, commit)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("diff of a broken database: %v", err)
		}
		return
	}
	defer c.Close()
	for _, sc := range []*schema.Schema{c.Before(), c.After()} {
		for _, tab := range sc.Tables {
			if err := c.Rows(tab.Name, readRow); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnreadable) {
				t.Errorf("rows of %s in a broken database: %v", tab.Name, err)
			}
		}
	}
}
