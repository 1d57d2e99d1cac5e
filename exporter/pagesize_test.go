package exporter_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"celldexport/diffpage/shadow"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celldsim"
	"celldexport/internal/ltxfile"
)

// reshaped is a cell whose database gets pages of another size in mid-epoch,
// as after VACUUM: what it becomes is written by SQLite in other cells.
type reshaped struct {
	*tape
	at     uint64
	donors int
	from   *celldsim.Cell // whose database the cell's is now
}

var twoTables = []string{`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, `CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID`}

func newReshaped(t *testing.T) *reshaped {
	p := &reshaped{tape: newTape(t, "page_size(4096)")}
	p.unit(append(slices.Clone(twoTables), filler("t", 300, "i, 'v'||i||hex(zeroblob(i))"), filler("w", 200, "'k'||i, i"))...)
	p.at, p.from = p.c.TXID(), p.c
	return p
}

// become has the next unit be an image of the same rows, changed by the
// statements, in pages of another size.
func (p *reshaped) become(size int, statements ...string) {
	p.t.Helper()
	p.donors++
	name := fmt.Sprint("donor", p.donors)
	d, err := p.h.node.ActivateWith(p.t.Context(), celldsim.Activation{Cell: p.fleet.CellID(class, name), Name: name, Pragmas: []string{fmt.Sprintf("page_size(%d)", size)}})
	p.must(err)
	if len(p.rowsOf("t")) == 0 {
		p.t.Fatal("there is nothing to take over")
	}
	p.write(d, twoTables...)
	for _, table := range []string{"t", "w"} {
		p.write(d, "INSERT INTO "+table+" VALUES"+strings.Join(p.rowsOf(table), ","))
	}
	p.write(d, statements...)
	_, err = d.FullImage()
	p.must(err)
	p.must(d.Upload(p.t.Context()))
	p.from = d
	p.take()
}

// rowsOf are the rows of a table as SQL.
func (p *reshaped) rowsOf(table string) []string {
	p.t.Helper()
	columns := map[string]string{"t": "id", "w": "k"}[table]
	rows, err := p.from.DB().Query("SELECT '('||quote(" + columns + ")||','||quote(v)||')' FROM " + table)
	p.must(err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var row string
		p.must(rows.Scan(&row))
		out = append(out, row)
	}
	p.must(rows.Err())
	return out
}

// goOn has the next unit be what statements change, page by page.
func (p *reshaped) goOn(statement string) {
	p.t.Helper()
	p.write(p.from, statement)
	p.take()
}

// take makes the donor's newest file the cell's next.
func (p *reshaped) take() {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.from.LTXDir(), ltxfile.FileName(p.from.TXID(), p.from.TXID())))
	p.must(err)
	p.at++
	p.place(p.at, p.edit(b, func(h *ltxfile.Header, _ map[uint32][]byte) { h.MinTXID, h.MaxTXID = p.at, p.at }))
}

// exported exports what is there and holds all validators against it.
func (p *reshaped) exported() *consumer.Consumer {
	p.t.Helper()
	if left := p.h.once(); len(left) > 0 {
		p.t.Fatalf("left: %v", left)
	}
	got := p.consumer()
	src := consumer.Source{Scope: p.c.Scope(), DB: p.from.DB(), Epoch: 1, TXID: p.at}
	diffs, err := got.Compare(p.t.Context(), src)
	p.must(err)
	for _, d := range slices.Concat(diffs, got.Certified(src), got.Phantoms(p.survived)) {
		p.t.Error(d)
	}
	return got
}

// records are the cell's own of one txid, spelled short.
func (p *reshaped) records(got *consumer.Consumer, txid uint64) []string {
	var own []string
	for _, r := range got.Records {
		if s := spellBody(r.Body); r.Stream.Cell == p.c.Scope() && r.Position.TXID == txid && s != "watermark" && !slices.Contains(own, s) {
			own = append(own, s)
		}
	}
	return own
}

// crash runs an exporter that fails before it writes pages into a shadow of
// what it has just spooled.
func (p *reshaped) crash() {
	p.t.Helper()
	passed := false
	p.h.rig = func(o *exporter.Options) {
		o.Step = func(s exporter.Step) error {
			if s == exporter.StepPages {
				passed = true
				return fmt.Errorf("write: %w", syscall.EIO)
			}
			return nil
		}
	}
	defer func() { p.h.rig = nil }()
	e, err := p.h.open()
	p.must(err)
	_, err = e.Once(p.t.Context(), exportTime)
	if err = errors.Join(err, e.Close()); !passed {
		p.t.Fatalf("nothing was spooled: %v", err)
	}
}

// There and back with rows that change too, each in an image and then in a
// unit of single pages. Between is run after each of the four, whole says that
// it was an image.
func TestAnotherPageSize(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(p *reshaped, n int, whole bool){
		"one life":       func(*reshaped, int, bool) {},
		"restarted":      func(p *reshaped, _ int, _ bool) { p.exported() },
		"crashed":        func(p *reshaped, _ int, _ bool) { p.crash(); p.exported() },
		"crashed at end": func(p *reshaped, n int, _ bool) { p.crashIf(n == 4) },
		"torn": func(p *reshaped, _ int, whole bool) {
			p.crash()
			if whole {
				p.tear(20 * 512)
			}
			p.exported()
		},
		"torn while empty": func(p *reshaped, _ int, whole bool) {
			p.crash()
			if whole {
				p.tear(0)
			}
			p.exported()
		},
		// The entry that finds the torn file is of single pages; the image that
		// the crash came in follows.
		"torn later": func(p *reshaped, n int, _ bool) {
			if n == 1 {
				p.exported()
			}
			if p.crashIf(n == 3) {
				p.tear(9 * 4096)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newReshaped(t)
			first := p.at
			p.become(512, `UPDATE t SET v='new' WHERE id=7`, `DELETE FROM t WHERE id=9`, `INSERT INTO t VALUES(1000,'i')`, `DELETE FROM w WHERE k='k5'`)
			between(p, 1, true)
			p.goOn(`UPDATE t SET v='newer' WHERE id IN (8, 250)`)
			between(p, 2, false)
			p.become(4096, `UPDATE w SET v='back' WHERE k='k6'`)
			between(p, 3, true)
			p.goOn(`DELETE FROM t WHERE id > 299`)
			between(p, 4, false)
			got := p.exported()
			for i, want := range [][]string{{"rows t/1 UDI", "rows w/1 D"}, {"rows t/1 UU"}, {"rows w/1 U"}, {"rows t/1 DD"}} {
				p.wants(p.records(got, first+1+uint64(i)), want...)
			}
		})
	}
}

// A torn shadow whose pages the spool does not hold is an error that names it.
func TestTornShadow(t *testing.T) {
	t.Parallel()
	p := newReshaped(t)
	p.become(512, `UPDATE t SET v='new' WHERE id=7`)
	p.exported()
	p.goOn(`UPDATE t SET v='newer' WHERE id=8`)
	p.crash()
	p.tear(20 * 512)
	e, err := p.h.open()
	if err == nil {
		p.must(e.Close())
	}
	if !errors.Is(err, shadow.ErrTorn) || !strings.Contains(err.Error(), p.shadowPrefix()) {
		t.Errorf("a shadow that nothing mends: %v", err)
	}
}

// The same crash under a cell's very first pages.
func TestTornFirstPages(t *testing.T) {
	t.Parallel()
	p := &reshaped{tape: newTape(t, "page_size(4096)")}
	p.stage(append(slices.Clone(twoTables), filler("t", 300, "i, 'v'||i"))...)
	p.at, p.from = p.c.TXID(), p.c
	p.crash()
	p.tear(5 * 4096)
	p.exported()
	p.goOn(`UPDATE t SET v='new' WHERE id=7`)
	p.wants(p.records(p.exported(), p.at), "rows t/1 U")
}

// crashIf is crash when a condition holds, which it returns.
func (p *reshaped) crashIf(due bool) bool {
	p.t.Helper()
	if due {
		p.crash()
	}
	return due
}

// shadowPrefix begins the name of every shadow of the cell.
func (p *reshaped) shadowPrefix() string {
	sum := sha256.Sum256([]byte(p.c.Scope()))
	return hex.EncodeToString(sum[:12])
}

// tear leaves the cell's shadow as a crash may that came while it took its
// first pages or pages of another size: of a length, and all zero.
func (p *reshaped) tear(length int64) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.h.settings.State, "shadow", p.shadowPrefix()+"-*.db"))
	p.must(err)
	if len(files) != 1 {
		p.t.Fatalf("the cell has the shadows %q", files)
	}
	p.must(errors.Join(os.Truncate(files[0], 0), os.Truncate(files[0], length)))
}

// A unit that changes the page size and lacks a page is refused, and what is
// missing is named.
func TestAnotherPageSizeInPart(t *testing.T) {
	t.Parallel()
	p := newReshaped(t)
	p.become(512, `UPDATE t SET v='new' WHERE id=7`)
	b, err := os.ReadFile(p.localFile(p.at))
	p.must(err)
	p.place(p.at, p.edit(b, func(_ *ltxfile.Header, pages map[uint32][]byte) { delete(pages, 3) }))
	left := p.h.briefly(30)
	if len(left) != 1 || !containsAll(left[0].Reason, []string{ltxfile.FileName(p.at, p.at), "from pages of 4096 bytes", "pages of 512 bytes", "page 3 is missing"}) {
		t.Errorf("left: %v", left)
	}
	if got := p.records(p.consumer(), p.at); len(got) > 0 {
		t.Errorf("exported from a part: %q", got)
	}
	p.place(p.at, b)
	p.wants(p.records(p.exported(), p.at), "rows t/1 U")
}

// A database that was deleted comes back with pages of another size, in the
// same life of the exporter or in the next.
func TestAnotherPageSizeAfterNoPages(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			t.Parallel()
			p := newReshaped(t)
			b, err := os.ReadFile(p.localFile(p.at))
			p.must(err)
			p.at++
			zero := p.at
			p.place(zero, p.edit(b, func(h *ltxfile.Header, pages map[uint32][]byte) {
				h.Flags, h.PreApply = 0, ltxfile.ChecksumFlag|1
				h.MinTXID, h.MaxTXID, h.Commit = zero, zero, 0
				clear(pages)
			}))
			if restart {
				if left := p.h.once(); len(left) > 0 {
					t.Fatalf("left: %v", left)
				}
			}
			p.become(512, `DELETE FROM w`)
			got := p.exported()
			p.wants(p.records(got, zero+1), "schema kv/2", "schema t/2", "schema w/2", "snapshot kv/2 0", "snapshot t/2 300", "snapshot w/2 0", "end tables 3")
			p.goOn(`DELETE FROM t WHERE id < 3`)
			p.wants(p.records(p.exported(), zero+2), "rows t/2 DD")
		})
	}
}
