package schema

import (
	"fmt"
	"testing"
)

func TestTmp(t *testing.T) {
	for _, enc := range []Encoding{UTF8, UTF16LE, UTF16BE} {
		var es []Entry
		for i, q := range []string{
			"CREATE TABLE t(id INTEGER PRIMARY KEY, a INT DEFAULT -5, d TEXT DEFAULT 'it''s', f REAL DEFAULT 1, g DEFAULT (x'00ff'), h DEFAULT 0x10, i DEFAULT true, j DEFAULT abc, k DEFAULT CURRENT_TIMESTAMP, v AS (a*2), s AS (a*3) STORED, z NOT NULL, q text default \"x y\")",
			"CREATE TABLE w(b, a COLLATE weird, c REAL, v AS (1), PRIMARY KEY(c,a)) STRICT, WITHOUT ROWID",
			"CREATE TABLE w2(b, a COLLATE weird, c REAL, v AS (1), PRIMARY KEY(c,a,c)) WITHOUT ROWID",
			"CREATE TABLE bad(b frob frob, CHECK(",
			"CREATE TABLE c(id INTEGER PRIMARY KEY DESC, v CHECK(foo(v)))",
			"CREATE TABLE u(id INT PRIMARY KEY, v UNIQUE)",
		} {
			n := fmt.Sprint([]string{"t", "w", "w2", "bad", "c", "u"}[i])
			e := Entry{Type: "table", Root: uint32(i + 2)}
			put := func(s string) []byte {
				var o []byte
				for _, c := range []byte(s) {
					switch enc {
					case UTF8:
						o = append(o, c)
					case UTF16LE:
						o = append(o, c, 0)
					case UTF16BE:
						o = append(o, 0, c)
					}
				}
				return o
			}
			e.Name, e.Table, e.SQL = put(n), put(n), put(q)
			es = append(es, e)
			if n == "c" || n == "u" {
				es = append(es, Entry{Type: "index", Name: put("sqlite_autoindex_" + n + "_1"), Table: put(n), Root: 77})
			}
			if n == "u" {
				es = append(es, Entry{Type: "index", Name: put("sqlite_autoindex_" + n + "_2"), Table: put(n), Root: 78})
			}
		}
		var c Cache
		s, err := c.Load(enc, es)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Tables {
			t.Logf("%+v", x)
		}
	}
}
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load(UTF8, []Entry{{Type: "table", Name: []byte("t"), Table: []byte("t"), Root: 2, SQL: []byte("CREATE TABLE t(a,b,c)")}})
	}
}
