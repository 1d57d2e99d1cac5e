package diffpage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"celldexport/diffpage/btree"
	"celldexport/diffpage/schema"
)

// plain is a row of a dump with its texts in UTF-8, all of which have to have
// that form.
func plain(t *testing.T, enc schema.Encoding, row string) string {
	t.Helper()
	if row == "" || enc == schema.UTF8 {
		return row
	}
	row = inUTF8(enc, row)
	if strings.Contains(row, "?") {
		t.Fatalf("a text without a form in UTF-8: %s", row)
	}
	return row
}

// script22 makes rows in a table of a name that is not ASCII, with texts that
// are not, among them one that ends its page and one whose chain fills its last
// page.
func script22(t *testing.T, f *follower) (said []string) {
	t.Helper()
	take := func(events []event) {
		for _, e := range events {
			enc := f.base.Schema().Encoding
			said = append(said, event{e.op, e.key, plain(t, enc, e.before), plain(t, enc, e.after)}.String())
		}
	}
	f.src.exec("CREATE TABLE tä(id INTEGER PRIMARY KEY, b, fill BLOB)", "INSERT INTO tä VALUES(1,'erste 😀',NULL)",
		insert("tä", 300, "i+1, 'é😀'||char(0)||hex(zeroblob(i*7)), NULL"), "INSERT INTO tä VALUES(999,'ß',zeroblob(200000))")
	take(f.step()["tä"])
	cell := func(id int64) (c btree.Cell, end int) {
		var p btree.Page
		for _, leaf := range f.owned("tä", roleTree, btree.LeafTable) {
			page := f.layout().page(leaf)
			if err := p.Parse(leaf, page, f.base.usable); err != nil {
				t.Fatal(err)
			}
			for i := range p.Len() {
				if err := p.Cell(i, &c); err != nil {
					t.Fatal(err)
				}
				if c.Rowid == id {
					return c, int(binary.BigEndian.Uint16(page[8+2*i:])) + len(c.Raw)
				}
			}
		}
		t.Fatalf("no row %d", id)
		return c, 0
	}
	if _, end := cell(1); end != f.base.usable {
		t.Errorf("row 1 ends at byte %d of %d usable ones", end, f.base.usable)
	}
	long, _ := cell(999)
	each := f.base.usable - 4 // of a row on an overflow page
	fill := 200000 + each - (long.Payload-len(long.Local))%each
	f.src.exec(fmt.Sprintf("UPDATE tä SET fill=zeroblob(%d) WHERE id=999", fill))
	f.step() // how long it is depends on the encoding
	ends := func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		b := args[0].Blob()
		return sqlite.BlobValue(append(bytes.Clone(b[:len(b)-1]), 0xff)), nil
	}
	if err := f.src.conn.CreateFunction("ends", &sqlite.FunctionImpl{NArgs: 1, Scalar: ends}); err != nil {
		t.Fatal(err)
	}
	if long, _ = cell(999); (long.Payload-len(long.Local))%each != 0 {
		t.Errorf("a row of %d bytes does not fill its chain", long.Payload)
	}
	for _, unit := range [][]string{
		{"UPDATE tä SET b='letzte 😀' WHERE id=1", "UPDATE tä SET b='ß'||b WHERE id%100=0"},
		{"UPDATE tä SET fill=ends(fill), id=1000 WHERE id=999", "DELETE FROM tä WHERE id%7=0"},
		{"UPDATE tä SET fill=zeroblob(5)", "VACUUM", "INSERT INTO tä VALUES(NULL,'𝄞'||char(1114109),x'00')"},
	} {
		f.src.exec(unit...)
		events := f.step()["tä"]
		if len(events) == 0 {
			t.Errorf("no event of %q", unit)
		}
		for i := range events { // the fill is long, and of another length in each
			for _, row := range []*string{&events[i].before, &events[i].after} {
				if n := strings.LastIndex(*row, "|b00000000"); n >= 0 && len(*row) > n+1000 {
					*row = (*row)[:n] + "|" + (*row)[len(*row)-2:]
				}
			}
		}
		take(events)
	}
	return said
}

// TestUTF16InReservedPages is case 22: UTF-16 in pages with reserved bytes,
// the largest among them, shows the events of a control in UTF-8.
func TestUTF16InReservedPages(t *testing.T) {
	control := form{size: 4096, encoding: "UTF-8", secure: "0"}
	want := script22(t, newFollower(t, control.source(t)))
	if len(want) < 340 {
		t.Fatalf("%d events of the control", len(want))
	}
	forms := []form{
		{size: 65536, reserved: 8, encoding: "UTF-16be", secure: "0"}, {size: 65536, encoding: "UTF-16be", secure: "0"},
		{size: 65536, reserved: 8, encoding: "UTF-8", secure: "0"}, {size: 1024, reserved: 32, encoding: "UTF-16le", secure: "1"},
	}
	if testing.Short() {
		forms = forms[:1]
	}
	for _, f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			follow := newFollower(t, f.source(t))
			got := script22(t, follow)
			header := follow.src.last[16:21]
			if size := pageSizeOf(follow.src.last); size != f.size || int(header[4]) != f.reserved || follow.base.usable != f.size-f.reserved {
				t.Errorf("page size %d (header %x), %d usable", size, header, follow.base.usable)
			}
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("%d events, the control %d; the first that differs is %d:\n%v\n%v", len(got), len(want), i, cut(fmt.Sprint(got[min(i, len(got)):])), cut(fmt.Sprint(want[min(i, len(want)):])))
				}
			}
		})
	}
}
