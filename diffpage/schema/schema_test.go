package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// stored is a text as a database of the encoding stores it.
func storedText(enc Encoding, s string) []byte {
	if enc == UTF8 {
		return []byte(s)
	}
	var out []byte
	for _, u := range utf16.Encode([]rune(s)) {
		if enc == UTF16LE {
			out = binary.LittleEndian.AppendUint16(out, u)
		} else {
			out = binary.BigEndian.AppendUint16(out, u)
		}
	}
	return out
}

// rows makes sqlite_schema rows of CREATE TABLE texts named t0, t1 ...
func tableRows(enc Encoding, sql ...string) (entries []Entry) {
	for i, q := range sql {
		name := storedText(enc, fmt.Sprintf("t%d", i))
		entries = append(entries, Entry{Type: "table", Name: name, Table: name, Root: uint32(i + 2), SQL: storedText(enc, q)})
	}
	return entries
}

func load1(t *testing.T, enc Encoding, sql ...string) *Schema {
	t.Helper()
	s, err := new(Cache).Load(enc, tableRows(enc, sql...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBesideBroken: what cannot be read has a reason, and its neighbours are
// read; what only the writer knows is not needed.
func TestBesideBroken(t *testing.T) {
	for _, enc := range []Encoding{UTF8, UTF16LE, UTF16BE} {
		s := load1(t, enc,
			"CREATE TABLE t0(a, b COLLATE klingon, c CHECK(nofunc(c)), d AS (nofunc(a)), UNIQUE(b))",
			"CREATE TABLE t1(a b c, CHECK(",
			"CREATE TABLE other(a)",
			"CREATE TABLE t3("+strings.Repeat("c,", 3000)+"z)",
			"CREATE TABLE t4(k TEXT COLLATE klingon PRIMARY KEY, v) WITHOUT ROWID",
			"CREATE VIEW t5 AS SELECT 1")
		for i, readable := range []bool{true, false, false, false, true, false} {
			tab := s.ByName(fmt.Sprintf("t%d", i))
			if tab == nil || tab.Root != uint32(i+2) || (tab.Unreadable == "") != readable || (len(tab.Columns) > 0) != readable {
				t.Errorf("%v: table %d: %+v", enc, i, tab)
			}
		}
		if tab := s.ByName("t4"); tab.KeyFields != 1 || !cmp.Equal(tab.Stored, []int{0, 1}) || !tab.WithoutRowid {
			t.Errorf("%v: %+v", enc, tab)
		}
	}
}

// TestLayout checks which field of a record belongs to which column.
func TestLayout(t *testing.T) {
	s := load1(t, UTF8,
		"CREATE TABLE t0(a, v AS (a), b, s AS (a) STORED, c)",
		"CREATE TABLE t1(a, v AS (a), b, c, PRIMARY KEY(c, a, c)) WITHOUT ROWID",
		"CREATE TABLE t2(a, b, PRIMARY KEY(b COLLATE NOCASE, b)) WITHOUT ROWID",
		"CREATE TABLE t3(a INTEGER, b, PRIMARY KEY(a DESC))",
		"CREATE TABLE t4(a INTEGER PRIMARY KEY DESC)",
		"CREATE TABLE t5(a BIGINT PRIMARY KEY)",
		"CREATE TABLE t6(a INTEGER, b INTEGER, PRIMARY KEY(b, a))",
		"CREATE TABLE t7(a INT PRIMARY KEY, b ANY, c REAL) STRICT")
	for i, want := range []struct {
		stored, key   []int
		fields, alias int
	}{
		{[]int{0, 2, 3, 4}, nil, 0, -1},
		{[]int{3, 0, 2}, []int{3, 0}, 2, -1},
		{[]int{1, 1, 0}, []int{1}, 2, -1},
		{[]int{0, 1}, []int{0}, 0, 0},
		{[]int{0}, []int{0}, 0, -1},
		{[]int{0}, []int{0}, 0, -1},
		{[]int{0, 1}, []int{1, 0}, 0, -1},
		{[]int{0, 1, 2}, []int{0}, 0, -1},
	} {
		tab := s.Tables[i]
		if tab.Unreadable != "" || !cmp.Equal(tab.Stored, want.stored) || !cmp.Equal(tab.Key, want.key) || tab.KeyFields != want.fields || tab.Alias != want.alias {
			t.Errorf("%s: stored %v key %v fields %d alias %d %s, want %+v", tab.SQL, tab.Stored, tab.Key, tab.KeyFields, tab.Alias, tab.Unreadable, want)
		}
	}
	if v := s.Tables[0].Columns[1]; v.Field != -1 || v.Hidden != 2 || !v.Generated() {
		t.Errorf("virtual column %+v", v)
	}
	if c := s.Tables[7].Columns; c[1].Affinity != None || c[2].Affinity != RealAffinity || !s.Tables[7].Strict {
		t.Errorf("strict columns %+v", c)
	}
}

// TestDefaults checks what a short record reads as, in the stored form.
func TestDefaults(t *testing.T) {
	text := func(s string) Default { return Default{uint64(13 + 2*len(s)), []byte(s)} }
	integer := func(v int64) Default { return Default{6, binary.BigEndian.AppendUint64(nil, uint64(v))} }
	for decl, want := range map[string]Default{
		"":                                 {},
		"DEFAULT NULL":                     {},
		"DEFAULT 5":                        integer(5),
		"DEFAULT +5":                       integer(5),
		"DEFAULT -9223372036854775808":     integer(-1 << 63),
		"REAL DEFAULT 1":                   {7, []byte{0x3f, 0xf0, 0, 0, 0, 0, 0, 0}},
		"TEXT DEFAULT 5":                   text("5"),
		"INT DEFAULT '12'":                 integer(12),
		"DEFAULT '12'":                     text("12"),
		"DEFAULT 'it''s'":                  text("it's"),
		`DEFAULT "double"`:                 text("double"),
		"DEFAULT word":                     text("word"),
		"DEFAULT true":                     integer(1),
		"DEFAULT (false)":                  integer(0),
		"DEFAULT x'00ff'":                  {16, []byte{0, 255}},
		"DEFAULT ( /* ) */ x'41' -- )\n )": {14, []byte("A")},
		"DEFAULT (CAST('7' AS INT))":       integer(7),
		"DEFAULT CURRENT_TIMESTAMP":        {},
		"DEFAULT (random())":               {},
		"TEXT COLLATE NOCASE DEFAULT 'x' NOT NULL": text("x"),
	} {
		s := load1(t, UTF8, "CREATE TABLE t0(a, c "+decl+")")
		if tab := s.Tables[0]; tab.Unreadable != "" || !cmp.Equal(tab.Columns[1].Default, want) {
			t.Errorf("%s: %+v %s, want %+v", decl, tab.Columns, tab.Unreadable, want)
		}
	}
	s := load1(t, UTF16BE, "CREATE TABLE t0(a, c DEFAULT 'é😀')")
	if got := s.Tables[0].Columns[1].Default; !bytes.Equal(got.Body, storedText(UTF16BE, "é😀")) {
		t.Errorf("UTF-16: %x", got.Body)
	}
}

func TestModules(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE VIRTUAL TABLE a USING fts5(x)":                        "fts5",
		"create virtual table a using rtree":                          "rtree",
		`CREATE VIRTUAL TABLE "using" USING fts4(x)`:                  "fts4",
		`CREATE VIRTUAL TABLE "a""b USING no" USING fts4(x)`:          "fts4",
		"CREATE VIRTUAL TABLE [a USING no] /* USING x */USING\nfts3(": "fts3",
		"CREATE VIRTUAL TABLE `a` -- USING x\n USING \"fts5\"(x)":     "fts5",
		"CREATE VIRTUAL TABLE é USING geopoly":                        "geopoly",
		"CREATE VIRTUAL TABLE a":                                      "",
		"CREATE VIRTUAL TABLE 'open":                                  "",
		"CREATE VIRTUAL TABLE /* open":                                "",
		"CREATE VIRTUAL TABLE a -- open":                              "",
	} {
		if got := moduleOf(sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

func TestEntries(t *testing.T) {
	var c Cache
	table := tableRows(UTF8, "CREATE TABLE t0(a)")[0]
	if _, err := c.Load(UTF8, []Entry{table, table}); !errors.Is(err, ErrNames) {
		t.Errorf("two tables of one name: error %v", err)
	}
	rootless := table
	rootless.Root = 0
	s, err := c.Load(UTF8, []Entry{rootless, {Type: "trigger", Name: []byte("x")}, {Type: "nonsense"}})
	if err != nil || len(s.Tables) != 1 || s.Tables[0].Unreadable == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := c.Load(UTF8, nil); err != nil || len(s.Tables) != 0 || s.ByName("t0") != nil || (*Schema)(nil).ByName("x") != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestCache: one reading serves databases that differ in root pages alone,
// each with its own, from many goroutines.
func TestCache(t *testing.T) {
	var c Cache
	var wg sync.WaitGroup
	for root := range uint32(20) {
		wg.Go(func() {
			e := tableRows(UTF8, "CREATE TABLE t0(a)", "CREATE TABLE t1(b)")
			e[0].Root, e[1].Root = root+2, root+100
			s, err := c.Load(UTF8, e)
			if err != nil || s.Tables[0].Root != root+2 || s.ByName("t1").Root != root+100 {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	wg.Wait()
	if len(c.tables) != 2 || c.used.Len() != 2 {
		t.Errorf("%d tables remembered, %d in their order", len(c.tables), c.used.Len())
	}
	enc, err := c.Load(UTF16LE, tableRows(UTF16LE, "CREATE TABLE t0(a)"))
	if err != nil || enc.Encoding != UTF16LE || enc.Tables[0].SQL != "CREATE TABLE t0(a)" {
		t.Errorf("%+v, %v", enc, err)
	}
}

func TestAppendUTF8(t *testing.T) {
	for _, enc := range []Encoding{UTF8, UTF16LE, UTF16BE} {
		for _, s := range []string{"", "a\x00b", "é😀\U0010ffff", "\u2028<&>", "\ufffd"} {
			got, ok := enc.AppendUTF8([]byte("x"), storedText(enc, s))
			if !ok || string(got) != "x"+s {
				t.Errorf("%v: %q, %v, want %q", enc, got, ok, s)
			}
		}
	}
	for _, bad := range []struct {
		enc Encoding
		b   string
	}{
		{UTF8, "\xff"}, {UTF8, "a\xc3"}, {UTF8, "\xed\xa0\x80"}, {UTF8, "\xc0\x80"}, {UTF8, "\xf4\x90\x80\x80"},
		{UTF16LE, "a"}, {UTF16LE, "a\x00\x00\xd8"}, {UTF16LE, "\x00\xdc\x00\xd8"}, {UTF16LE, "\x00\xd8a\x00"},
		{UTF16BE, "\xd8\x00"}, {UTF16BE, "\xdc\x00\xd8\x00"}, {UTF16BE, "\xd8\x00\xd8\x00"},
	} {
		if got, ok := bad.enc.AppendUTF8([]byte("x"), []byte(bad.b)); ok || string(got) != "x" {
			t.Errorf("%v %x: %q, %v", bad.enc, bad.b, got, ok)
		}
	}
	dst := make([]byte, 0, 64)
	stored := storedText(UTF16LE, "text é😀")
	if n := testing.AllocsPerRun(100, func() { dst, _ = UTF16LE.AppendUTF8(dst[:0], stored) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzAppendUTF8: what is called valid is, and comes back as it was.
func FuzzAppendUTF8(f *testing.F) {
	f.Add([]byte("a\x00b"), uint8(1))
	f.Add([]byte{0x3d, 0xd8, 0x00, 0xde}, uint8(2))
	f.Fuzz(func(t *testing.T, stored []byte, n uint8) {
		enc := Encoding(n%3 + 1)
		got, ok := enc.AppendUTF8(nil, stored)
		if !ok {
			return
		}
		if !utf8.Valid(got) || !bytes.Equal(storedText(enc, string(got)), stored) {
			t.Errorf("%v %x: %q", enc, stored, got)
		}
	})
}

// FuzzLoad: no text of a CREATE statement gets a reader down or says anything
// of a neighbour, and a table that counts as readable has a sound layout.
func FuzzLoad(f *testing.F) {
	for _, sql := range []string{"CREATE TABLE t0(a INTEGER PRIMARY KEY, b DEFAULT (1))", "CREATE VIRTUAL TABLE t0 USING fts5(a)",
		"CREATE TABLE t0(a, b AS (a), PRIMARY KEY(b,a)) WITHOUT ROWID", "CREATE TABLE t0(a DEFAULT 'x') STRICT", "DROP TABLE t1", "CREATE TABLE t0 AS SELECT 1"} {
		f.Add(sql)
	}
	for _, sql := range realTexts(f) {
		f.Add(sql)
	}
	neighbour := Entry{Type: "table", Name: []byte("Neighbour"), Table: []byte("Neighbour"), Root: 9, SQL: []byte("CREATE TABLE Neighbour(a)")}
	f.Fuzz(func(t *testing.T, sql string) {
		row := rowOf(sql)
		if string(row.Name) == "Neighbour" {
			return
		}
		s, err := new(Cache).Load(UTF8, []Entry{neighbour, row})
		if err != nil {
			t.Fatal(err)
		}
		if n := s.ByName("Neighbour"); n.Unreadable != "" || len(n.Columns) != 1 {
			t.Errorf("the neighbour: %+v", n)
		}
		for _, tab := range s.Tables {
			for field, column := range tab.Stored {
				if c := tab.Columns[column]; c.Field > field || c.Hidden == 2 {
					t.Errorf("field %d is column %+v", field, c)
				}
			}
		}
		if equalFold(string(row.Name), "neighbour") {
			return
		}
		alone, err := new(Cache).Load(UTF8, []Entry{row})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(alone.Tables[0], s.Tables[1]); d != "" {
			t.Error(d)
		}
	})
}

// TestShadows: which names belong to a virtual table, and which only look so.
func TestShadows(t *testing.T) {
	entries := []Entry{}
	add := func(name, sql string, root uint32) {
		entries = append(entries, Entry{Type: "table", Name: []byte(name), Table: []byte(name), Root: root, SQL: []byte(sql)})
	}
	for name, module := range map[string]string{"docs": "fts5", "old": "fts4", "box": "rtree", "emb": "vec0(v float[4])", "my_emb": "VEC0(v float[4])"} {
		add(name, "CREATE VIRTUAL TABLE "+name+" USING "+module, 0)
	}
	want := map[string]Kind{
		"docs_content": Shadow, "docs_idx": Shadow, "DOCS_data": Shadow, "docs_segdir": Ordinary, "docs_more_content": Ordinary,
		"old_segdir": Shadow, "old_stat": Shadow, "old_idx": Ordinary, "box_node": Shadow, "box_content": Ordinary,
		"emb_chunks": Shadow, "emb_rowids": Shadow, "emb_info": Shadow, "emb_auxiliary": Shadow, "emb_vector_chunks00": Shadow,
		"my_emb_vector_chunks15": Shadow, "emb_metadatachunks01": Shadow, "emb_metadatatext02": Shadow,
		"emb_vector_chunks": Ordinary, "emb_vector_chunks0": Ordinary, "emb_vector_chunks0x": Ordinary, "emb_vector_chunks000": Ordinary,
		"emb_content": Ordinary, "other_chunks": Ordinary, "emb": Virtual, "emb_": Ordinary,
	}
	root := uint32(2)
	for name, kind := range want {
		if kind != Virtual {
			add(name, `CREATE TABLE "`+name+`"(a)`, root)
			root++
		}
	}
	s, err := new(Cache).Load(UTF8, entries)
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range want {
		if tab := s.ByName(name); tab == nil || tab.Kind != kind {
			t.Errorf("%s: %+v, want a %v", name, tab, kind)
		}
	}
}
