package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"celldexport/internal/ltxfile"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// database is a whole database as SQLite wrote it.
type database struct {
	size   int // of a page
	usable int // of a page
	image  []byte
}

func openDatabase(t testing.TB, image []byte) database {
	t.Helper()
	h, err := ParseFileHeader(image)
	if err != nil || len(image)%int(h.PageSize) != 0 {
		t.Fatalf("a database of %d bytes: %+v, %v", len(image), h, err)
	}
	return database{size: int(h.PageSize), usable: h.Usable, image: bytes.Clone(image)}
}

// page is the page of a number, which starts at 1.
func (d *database) page(pgno int) []byte { return d.image[(pgno-1)*d.size : pgno*d.size] }

func (d *database) pages() int { return len(d.image) / d.size }

// payload is the whole record of a cell, by its chain.
func (d *database) payload(c *Cell) []byte {
	b := bytes.Clone(c.Local)
	for next := c.Overflow; len(b) < c.Payload; {
		page := d.page(int(next))
		b = append(b, page[4:4+min(c.Payload-len(b), d.usable-4)]...)
		next = binary.BigEndian.Uint32(page)
	}
	return b
}

// realDatabases are databases that SQLite writes here, and the captured ones,
// where they lie beside the checkout.
func realDatabases(t testing.TB) (all []database) {
	t.Helper()
	for _, setup := range []string{"PRAGMA page_size=512", "PRAGMA page_size=1024; PRAGMA encoding='UTF-16le'", "PRAGMA page_size=4096; PRAGMA auto_vacuum=1"} {
		all = append(all, openDatabase(t, written(t, setup)))
	}
	return append(all, captured(t)...)
}

// written has every type of page, serial type and chain.
func written(t testing.TB, setup string) []byte {
	t.Helper()
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteScript(conn, setup+`;
		CREATE TABLE numbers(id INTEGER PRIMARY KEY, a, b REAL, c TEXT);
		CREATE TABLE long(a INTEGER PRIMARY KEY, b BLOB, c TEXT);
		CREATE TABLE keyed(k TEXT, n INT, v, PRIMARY KEY(k, n)) WITHOUT ROWID;
		CREATE INDEX words ON numbers(c, a);
		WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<65)
			INSERT INTO numbers SELECT CASE WHEN i%7 THEN i ELSE -(1<<i*61/63) END, CASE i%5 WHEN 0 THEN NULL WHEN 1 THEN (1<<i%63)-1 WHEN 2 THEN -(1<<i%63) WHEN 3 THEN i/3.0 ELSE i%2 END, i*i/4.0, 'word '||i FROM n;
		INSERT INTO long VALUES(1, zeroblob(300), 'a'), (2, x'00ff', 'text é😀'), (-9223372036854775808, CAST(printf('%0700d', 5) AS BLOB), ''), (9223372036854775807, zeroblob(9000), NULL);
		WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<50)
			INSERT INTO keyed SELECT substr('keys of several lengths, some long ones among them', 1, 3+i), i*i*i, CASE WHEN i%6=0 THEN zeroblob(40*i) ELSE i END FROM n;
		ALTER TABLE numbers ADD COLUMN d DEFAULT 'x'; UPDATE numbers SET d=c WHERE id%9=0; DELETE FROM numbers WHERE id%11=0`, nil)
	if err != nil {
		t.Fatal(err)
	}
	image, err := conn.Serialize("main")
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// captured has the states after the first and the last of the captured files.
func captured(t testing.TB) (all []database) {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "golden-ltx")
	var image []byte
	for txid := range uint64(6) {
		file, err := os.ReadFile(filepath.Join(dir, ltxfile.FileName(txid+1, txid+1)))
		if errors.Is(err, os.ErrNotExist) {
			t.Log("the captured files beside the checkout (../shared/fixtures/golden-ltx) are absent: only databases written here are the seeds")
			return nil
		}
		if err == nil {
			_, err = ltxfile.Decode(bytes.NewReader(file), int64(len(file)), func(pgno uint32, data []byte) error {
				if missing := int(pgno)*len(data) - len(image); missing > 0 {
					image = append(image, make([]byte, missing)...)
				}
				copy(image[int(pgno-1)*len(data):], data)
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		if txid == 0 || txid == 5 {
			all = append(all, openDatabase(t, image))
		}
	}
	return all
}

// realCells shows the cells of the b-tree pages that hold rows, page by page,
// each with its whole record. Chains, free and pointer-map pages are none,
// and are left out by what their first byte says.
func realCells(t testing.TB, show func(d *database, typ PageType, c *Cell, payload []byte)) {
	t.Helper()
	for _, d := range realDatabases(t) {
		types := make(map[PageType]int)
		for pgno := range d.pages() {
			var p Page
			if err := p.Parse(uint32(pgno+1), d.page(pgno+1), d.usable); err != nil || !p.Type.Rows() {
				continue
			}
			types[p.Type]++
			for i := range p.Len() {
				var c Cell
				if err := p.Cell(i, &c); err != nil {
					t.Fatalf("page %d, cell %d: %v", pgno+1, i, err)
				}
				show(&d, p.Type, &c, d.payload(&c))
			}
		}
		if types[LeafTable] == 0 || types[LeafIndex] == 0 {
			t.Errorf("a database of %d bytes shows pages of types %v", len(d.image), types)
		}
	}
}

// TestRealCells holds the writer that the fuzz tests have against SQLite: it
// makes the same cell and the same record, byte for byte.
func TestRealCells(t *testing.T) {
	shown, chained := map[PageType]int{}, 0
	serials := make(map[uint64]bool)
	realCells(t, func(d *database, typ PageType, c *Cell, payload []byte) {
		shown[typ]++
		if c.Overflow != 0 {
			chained++
		}
		again := cellOf(typ, d.usable, c.Rowid, payload, c.Overflow)
		if typ == InteriorIndex {
			again = again[4:]
		}
		// SQLite pads what is too short to become a free block.
		if again = append(again, make([]byte, max(0, len(c.Raw)-len(again)))...); !bytes.Equal(again, c.Raw) {
			t.Errorf("type %d: a cell is %x, written here %x", typ, c.Raw, again)
		}
		fields, err := Fields(payload, nil)
		if err != nil {
			t.Fatalf("record %x: %v", payload, err)
		}
		for _, f := range fields {
			serials[min(f.Serial, 12+f.Serial%2)] = true
		}
		if !bytes.Equal(record(fields...), payload) {
			t.Errorf("a record is %x, written here %x", payload, record(fields...))
		}
	})
	for _, typ := range []PageType{LeafTable, LeafIndex, InteriorIndex} {
		if shown[typ] < 10 {
			t.Errorf("%d cells of type %d", shown[typ], typ)
		}
	}
	for serial := range uint64(14) {
		if serial != 10 && serial != 11 && !serials[serial] {
			t.Errorf("no value of serial type %d", serial)
		}
	}
	if chained < 10 {
		t.Errorf("%d cells with a chain", chained)
	}
}
