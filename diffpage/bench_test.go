package diffpage

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/superfly/ltx"

	"celldexport/diffpage/shadow"
)

// benchUnit is a base and a unit on it, as pages.
type benchUnit struct {
	base   *Base
	commit uint32
	size   uint32
	pgnos  []uint32
	was    [][]byte
	is     [][]byte
}

// newBenchUnit makes a table of rows and a unit by the statement.
func newBenchUnit(b *testing.B, rows int, table, update string) *benchUnit {
	b.Helper()
	src := newSource(b, "PRAGMA page_size=4096")
	src.exec(table)
	src.exec(fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT INTO t SELECT i, i%%97, 'name of '||i, i*1.5, hex(randomblob(16)) FROM n", rows))
	f := newFollower(b, src)
	images, commit := src.unit()
	c, err := f.base.Diff(images, commit)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Accept(); err != nil {
		b.Fatal(err)
	}
	if err := f.sh.Flush(); err != nil {
		b.Fatal(err)
	}
	before := src.last
	src.exec(update)
	images, commit = src.unit()
	u := &benchUnit{base: f.base, commit: commit, size: images.PageSize()}
	for i := range images.Len() {
		page, err := images.Page(i, nil)
		if err != nil {
			b.Fatal(err)
		}
		pgno := images.Pgno(i)
		u.pgnos = append(u.pgnos, pgno)
		u.is = append(u.is, bytes.Clone(page))
		if pgno <= f.base.shadow.Commit() {
			u.was = append(u.was, before[(pgno-1)*u.size:pgno*u.size])
		}
	}
	return u
}

func (u *benchUnit) images(b *testing.B) *shadow.Images {
	images := shadow.NewImages(u.size, 1<<30, "")
	for i, pgno := range u.pgnos {
		if err := images.Add(pgno, u.is[i]); err != nil {
			b.Fatal(err)
		}
	}
	return images
}

func (u *benchUnit) run(b *testing.B, want int) {
	b.ReportAllocs()
	b.SetBytes(int64(len(u.pgnos)) * int64(u.size))
	images := u.images(b)
	for b.Loop() {
		c, err := u.base.Diff(images, u.commit)
		if err != nil {
			b.Fatal(err)
		}
		rows := 0
		err = c.Rows("t", func(op Op, before, after Row) error {
			rows++
			_, err := after.Cell(1)
			return err
		})
		if err != nil || rows != want {
			b.Fatalf("%d rows, %v", rows, err)
		}
		c.Release()
	}
	b.ReportMetric(float64(len(u.pgnos)), "pages")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(u.pgnos)), "ns/page")
}

const benchTable = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, name TEXT, r REAL, x TEXT)"

// BenchmarkDiff is the whole diff of a unit with all its rows shown. The
// sizes of the one-row cases differ by 64: their times should not.
func BenchmarkDiff(b *testing.B) {
	for _, c := range []struct {
		name   string
		rows   int
		update string
		want   int
	}{
		{"1 row of 3k", 3000, "UPDATE t SET n=n+1 WHERE id=1500", 1},
		{"1 row of 200k", 200000, "UPDATE t SET n=n+1 WHERE id=100000", 1},
		{"100 rows on 100 pages", 200000, "UPDATE t SET n=n+1 WHERE id%2000=0", 100},
		{"20k rows on 2k pages", 200000, "UPDATE t SET n=n+1 WHERE id%10=0", 20000},
	} {
		b.Run(c.name, func(b *testing.B) { newBenchUnit(b, c.rows, benchTable, c.update).run(b, c.want) })
	}
	b.Run("100 rows WITHOUT ROWID", func(b *testing.B) {
		newBenchUnit(b, 200000, "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, name TEXT, r REAL, x TEXT) WITHOUT ROWID",
			"UPDATE t SET n=n+1 WHERE id%2000=0").run(b, 100)
	})
}

// BenchmarkFloor is what no diff can be faster than: looking at both images
// of every page once.
func BenchmarkFloor(b *testing.B) {
	u := newBenchUnit(b, 200000, benchTable, "UPDATE t SET n=n+1 WHERE id%2000=0")
	for i := range u.was {
		u.is[i] = bytes.Clone(u.was[i])
	}
	b.SetBytes(int64(len(u.was)) * int64(u.size))
	for b.Loop() {
		for i := range u.was {
			if !bytes.Equal(u.was[i], u.is[i]) {
				b.Fatal("not equal")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(u.was)), "ns/page")
}

// BenchmarkDecode is the work of taking the pages out of an LTX file, which
// comes before every diff: the public decoder over the unit of 100 rows.
func BenchmarkDecode(b *testing.B) {
	u := newBenchUnit(b, 200000, benchTable, "UPDATE t SET n=n+1 WHERE id%2000=0")
	var file bytes.Buffer
	enc, err := ltx.NewEncoder(&file)
	if err != nil {
		b.Fatal(err)
	}
	header := ltx.Header{Version: ltx.Version, Flags: ltx.HeaderFlagNoChecksum, PageSize: u.size, Commit: u.commit, MinTXID: 2, MaxTXID: 2, Timestamp: 1}
	if err := enc.EncodeHeader(header); err != nil {
		b.Fatal(err)
	}
	for i, pgno := range u.pgnos {
		if err := enc.EncodePage(ltx.PageHeader{Pgno: pgno}, u.is[i]); err != nil {
			b.Fatal(err)
		}
	}
	if err := enc.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(u.pgnos)) * int64(u.size))
	page := make([]byte, u.size)
	for b.Loop() {
		dec := ltx.NewDecoder(bytes.NewReader(file.Bytes()))
		if err := dec.DecodeHeader(); err != nil {
			b.Fatal(err)
		}
		var h ltx.PageHeader
		for {
			if err := dec.DecodePage(&h, page); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		if err := dec.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(u.pgnos)), "ns/page")
}

// BenchmarkMap makes an owner map from scratch.
func BenchmarkMap(b *testing.B) {
	u := newBenchUnit(b, 200000, benchTable, "UPDATE t SET n=n+1 WHERE id=1")
	b.SetBytes(int64(u.base.shadow.Commit()) * int64(u.size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewBase(u.base.shadow, WithShared(u.base.shared)); err != nil {
			b.Fatal(err)
		}
	}
}
