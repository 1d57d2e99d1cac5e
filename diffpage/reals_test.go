package diffpage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite/sqlitex"
)

// TestBoundReals binds what no literal says: a NaN is NULL, a negative zero is
// 0.0 in a REAL column and itself in one without a type, infinities stay.
func TestBoundReals(t *testing.T) {
	src := newSource(t)
	f := newFollower(t, src)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, r REAL, n, w NUMERIC)", "INSERT INTO t(id) VALUES(1),(2),(3),(4),(5)")
	f.step()
	values := []float64{math.NaN(), math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 3}
	for i, v := range values {
		err := sqlitex.Execute(src.conn, "UPDATE t SET r=?1, n=?1, w=?1 WHERE id=?2", &sqlitex.ExecOptions{Args: []any{v, i + 1}})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Of a NaN nothing is left, so row 1 did not change.
	want := "[U 2 [i2|n|n|n] [i2|r0000000000000000|r8000000000000000|i0] U 3 [i3|n|n|n] [i3|r7ff0000000000000|r7ff0000000000000|r7ff0000000000000]" +
		" U 4 [i4|n|n|n] [i4|rfff0000000000000|rfff0000000000000|rfff0000000000000] U 5 [i5|n|n|n] [i5|r4008000000000000|r4008000000000000|i3]]"
	if got := fmt.Sprint(f.step()["t"]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := sqlitex.Execute(src.conn, "UPDATE t SET r=?1, n=?1 WHERE id=3", &sqlitex.ExecOptions{Args: []any{math.NaN()}}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.step()["t"]); got != "[U 3 [i3|r7ff0000000000000|r7ff0000000000000|r7ff0000000000000] [i3|n|n|r7ff0000000000000]]" {
		t.Errorf("NaN in the place of infinity: %s", got)
	}
	for _, same := range []any{3.0, 3} {
		if err := sqlitex.Execute(src.conn, "UPDATE t SET r=?1 WHERE id=5", &sqlitex.ExecOptions{Args: []any{same}}); err != nil {
			t.Fatal(err)
		}
		if got := f.step(); len(got) != 0 {
			t.Errorf("the same number again: %v", got)
		}
	}
}

// TestStoredNaN is a NaN that only another writer leaves in a file: SQLite
// reads NULL, and so do we; of one NaN to another nothing changes.
func TestStoredNaN(t *testing.T) {
	src := newSource(t)
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, n)", "INSERT INTO t VALUES(1,1.5),(2,2.5)")
	f := newFollower(t, src)
	f.step()
	store := func(was, is uint64) {
		t.Helper()
		image := string(src.last)
		from, to := string(binary.BigEndian.AppendUint64(nil, was)), string(binary.BigEndian.AppendUint64(nil, is))
		if strings.Count(image, from) != 1 {
			t.Fatalf("%x is %d times in the file", was, strings.Count(image, from))
		}
		src.reopen([]byte(strings.Replace(image, from, to, 1)))
	}
	store(math.Float64bits(1.5), 0x7ff8_0000_0000_0001)
	if got := fmt.Sprint(f.step()["t"]); got != "[U 1 [i1|r3ff8000000000000] [i1|n]]" {
		t.Errorf("a NaN: %s", got)
	}
	store(0x7ff8_0000_0000_0001, 0x7ff8_0000_0000_0002)
	if got := f.step()["t"]; len(got) != 0 || f.pages == 0 {
		t.Errorf("another NaN: %v in %d pages", got, f.pages)
	}
}

// TestManyColumns is a table of as many columns as SQLite has.
func TestManyColumns(t *testing.T) {
	src := newSource(t, "PRAGMA page_size=512")
	f := newFollower(t, src)
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	src.exec("CREATE TABLE t("+strings.Join(names, ",")+")", insert("t(c0,c1999)", 50, "i, 'end'"))
	for _, unit := range [][]string{nil, {"UPDATE t SET c1999='changed' WHERE c0=7", "UPDATE t SET c1000=c1001", "UPDATE t SET c1998=1 WHERE c0=9", "DELETE FROM t WHERE c0=11"}} {
		src.exec(unit...)
		images, commit := src.unit()
		c, err := f.base.Diff(images, commit)
		if err != nil {
			t.Fatal(err)
		}
		tab := c.After().ByName("t")
		if len(tab.Columns) != len(names) {
			t.Fatalf("%d columns", len(tab.Columns))
		}
		var got []string
		err = c.Rows("t", func(op Op, before, after Row) error {
			said := string("IUD"[op])
			for _, r := range []Row{before, after} {
				if r == nil {
					continue
				}
				for _, i := range []int{0, 1000, 1998, 1999} {
					v, err := r.Cell(i)
					if err != nil {
						return err
					}
					said += fmt.Sprintf(" %d:%d%s", v.Class, v.Int, v.Bytes)
				}
			}
			got = append(got, said)
			return nil
		})
		if err := errors.Join(err, c.Accept()); err != nil {
			t.Fatal(err)
		}
		if unit == nil && (len(got) != 50 || got[6] != "I 1:7 0:0 0:0 3:0end") {
			t.Errorf("%d rows, %v", len(got), got[6])
		}
		if want := "[U 1:7 0:0 0:0 3:0end 1:7 0:0 0:0 3:0changed U 1:9 0:0 0:0 3:0end 1:9 0:0 1:1 3:0end D 1:11 0:0 0:0 3:0end]"; unit != nil && fmt.Sprint(got) != want {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}
