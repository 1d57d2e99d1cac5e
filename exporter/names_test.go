package exporter_test

import "testing"

// Names that are no UTF-8 stay apart through the ledger, which every unit here
// reads anew, through Parquet and in the consumer.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	// The dump that copies are held against has the stored names.
	p.odd = []string{"a\xff", "a\xfe", "a\uFFFD"}
	p.unit("CREATE TABLE \"a\xff\"(id INTEGER PRIMARY KEY, \"c\xff\", \"c\xfe\")", "CREATE TABLE \"a\xfe\"(id INTEGER PRIMARY KEY, v)")
	p.wants(p.unit("INSERT INTO \"a\xff\" VALUES(1,'x','y')", "INSERT INTO \"a\xfe\" VALUES(2,'z')"), "rows a\uFFFDfe/1 I", "rows a\uFFFDff/1 I")
	p.unit("ALTER TABLE \"a\xfe\" ADD COLUMN w")
	p.wants(p.unit("UPDATE \"a\xff\" SET \"c\xfe\"='yy'", "UPDATE \"a\xfe\" SET w=1"), "rows a\uFFFDfe/2 U", "rows a\uFFFDff/1 U")
	p.wantRows("a\uFFFDff", `[1] [1,"x","yy"]`)
	p.wantRows("a\uFFFDfe", `[2] [2,"z",1]`)
	p.wants(p.unit("DROP TABLE \"a\xff\""), "drop a\uFFFDff/1")
	p.wake(true)
	p.unit("INSERT INTO \"a\xfe\" VALUES(3,'after',NULL)")
	p.wantRows("a\uFFFDfe", `[2] [2,"z",1]`, `[3] [3,"after",null]`)
}
