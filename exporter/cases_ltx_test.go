package exporter_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// localFile and objectKey are where a txid of the cell lies.
func (p *tape) localFile(txid uint64) string {
	return filepath.Join(p.c.LTXDir(), ltxfile.FileName(txid, txid))
}

func (p *tape) objectKey(txid uint64) string {
	return celld.LTXKey(p.c.Scope(), p.c.Epoch(), 0, txid, txid)
}

// place makes b the file of a txid, on disk and in the bucket.
func (p *tape) place(txid uint64, b []byte) {
	p.t.Helper()
	p.must(os.WriteFile(p.localFile(txid)+".tmp", b, 0o644))
	p.must(os.Rename(p.localFile(txid)+".tmp", p.localFile(txid)))
	_, err := objstore.PutBytes(p.t.Context(), p.store, p.objectKey(txid), b, objstore.PutOptions{})
	p.must(err)
}

// edit returns an LTX file with its header and pages changed.
func (p *tape) edit(b []byte, change func(h *ltxfile.Header, pages map[uint32][]byte)) []byte {
	p.t.Helper()
	pages := make(map[uint32][]byte)
	info, err := ltxfile.Decode(bytes.NewReader(b), int64(len(b)), func(pgno uint32, data []byte) error {
		pages[pgno] = bytes.Clone(data)
		return nil
	})
	p.must(err)
	h := info.Header
	change(&h, pages)
	var out bytes.Buffer
	w, err := ltxfile.NewWriter(&out, h, ltxfile.Frame)
	p.must(err)
	for _, pgno := range slices.Sorted(maps.Keys(pages)) {
		p.must(w.WritePage(pgno, pages[pgno]))
	}
	post := uint64(0)
	if !h.NoChecksum() {
		post = ltxfile.ChecksumFlag
	}
	_, err = w.Close(post)
	p.must(err)
	return out.Bytes()
}

// stuck runs the exporter for so many rounds over something it cannot export,
// and returns what it says of it.
func (p *tape) stuck(rounds uint64) string {
	p.t.Helper()
	left := p.h.briefly(rounds)
	if len(left) != 1 || left[0].Cell != p.c.Scope() {
		p.t.Fatalf("left: %v, want the cell", left)
	}
	return left[0].Reason
}

// Pages that a shrink cut off do not come back when the database grows over
// their numbers again, in single files and in one that was merged across it.
func TestLTX01(t *testing.T) {
	t.Parallel()
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprintf("merged %v", merged), func(t *testing.T) {
			t.Parallel()
			p := newTape(t, "page_size(1024)")
			p.unit(`CREATE TABLE plain(v)`, `CREATE TABLE keyed(k TEXT PRIMARY KEY, v) WITHOUT ROWID`)
			step := func(statements ...string) []string {
				if !merged {
					return p.unit(statements...)
				}
				for _, sql := range statements {
					p.must(p.c.Exec(sql))
				}
				_, err := p.c.Capture()
				p.must(err)
				return nil
			}
			step(filler("plain", 1500, "hex(randomblob(60))"), filler("keyed", 700, "'k'||i, hex(randomblob(60))"))
			if n := p.pages(); n < 300 {
				t.Fatalf("%d pages, the case needs 300", n)
			}
			step(`DELETE FROM plain WHERE rowid % 100 <> 7`, `DELETE FROM keyed WHERE length(k) > 2`)
			got := step(`VACUUM`)
			if n := p.pages(); n > 30 {
				t.Fatalf("%d pages after VACUUM, the case needs a shrink", n)
			}
			if i, u, d := ops(got, "plain"); !merged && i+u+d == 0 {
				t.Error("VACUUM renumbered rows without a key and no record says so")
			}
			if i, u, d := ops(got, "keyed"); i+u+d != 0 {
				t.Errorf("VACUUM changes rows with a key: %d inserts, %d updates, %d deletes", i, u, d)
			}
			step(filler("plain", 900, "'again'||i||hex(randomblob(70))"), filler("keyed", 900, "'new'||i, 1"))
			if merged {
				p.must(p.c.UploadMerged(t.Context()))
				p.export()
			}
		})
	}
}

// pages is the size of the cell's database.
func (p *tape) pages() (n uint32) {
	p.t.Helper()
	p.must(p.c.DB().QueryRow(`PRAGMA page_count`).Scan(&n))
	return n
}

// A file that grows the database and lacks pages that are new is refused as a
// whole, naming the file and the page; the next residency, whose image holds
// everything, carries the stream on.
func TestLTX02(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(pages map[uint32][]byte, before uint32) uint32{
		"two new pages": func(pages map[uint32][]byte, before uint32) uint32 {
			delete(pages, before+3)
			delete(pages, before+4)
			return before + 3
		},
		"the last page": func(pages map[uint32][]byte, _ uint32) uint32 {
			last := slices.Max(slices.Collect(maps.Keys(pages)))
			delete(pages, last)
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTape(t, "page_size(1024)")
			p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, filler("t", 20, "i, 'v'||i"))
			before := p.pages()
			p.stage(filler("t", 100, "i+100, hex(randomblob(50))"))
			broken := p.c.TXID()
			b, err := os.ReadFile(p.localFile(broken))
			p.must(err)
			var missing uint32
			p.place(broken, p.edit(b, func(h *ltxfile.Header, pages map[uint32][]byte) {
				if h.Commit < before+10 {
					t.Fatalf("the database grows from %d to %d pages, the case needs ten more", before, h.Commit)
				}
				missing = drop(pages, before)
			}))
			reason := p.stuck(30)
			for _, part := range []string{ltxfile.FileName(broken, broken), fmt.Sprintf("page %d", missing)} {
				if !strings.Contains(reason, part) {
					t.Errorf("the reason does not name %s: %s", part, reason)
				}
			}
			got := p.consumer()
			for _, r := range got.Records {
				if r.Position.TXID >= broken {
					t.Errorf("a %s record of the broken file: %s", r.Body.Kind(), r.Position)
				}
			}
			if d := got.Certified(consumer.Source{Scope: p.c.Scope(), Epoch: 1, TXID: broken - 1}); len(d) > 0 {
				t.Errorf("what came before is not certified: %v", d)
			}
			p.wake(true)
			p.unit(`INSERT INTO t VALUES(999, 'after')`)
		})
	}
}

// A database that is deleted (a file that leaves no page) closes every table;
// what is made later goes on with the next generation.
func TestLTX03(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, `CREATE TABLE gone(v)`)
	p.unit(`INSERT INTO t VALUES(1, 'a')`, `INSERT INTO gone VALUES(1)`)
	b, err := os.ReadFile(p.localFile(p.c.TXID()))
	p.must(err)
	zero := p.c.TXID() + 1
	p.place(zero, p.edit(b, func(h *ltxfile.Header, pages map[uint32][]byte) {
		h.Flags, h.PreApply = 0, ltxfile.ChecksumFlag|1
		h.MinTXID, h.MaxTXID, h.Commit = zero, zero, 0
		clear(pages)
	}))
	if left := p.h.once(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	got := p.records(p.consumer(), 1, zero)
	slices.Sort(got)
	if want := []string{"drop gone/1", "drop kv/1", "drop t/1"}; !slices.Equal(got, want) {
		t.Errorf("a database without pages: %q, want %q", got, want)
	}
	other := p.h.activate("other")
	p.write(other, `CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, `INSERT INTO t VALUES(2, 'b')`)
	_, err = other.FullImage()
	p.must(err)
	b, err = os.ReadFile(filepath.Join(other.LTXDir(), ltxfile.FileName(other.TXID(), other.TXID())))
	p.must(err)
	p.must(other.Upload(t.Context()))
	p.place(zero+1, p.edit(b, func(h *ltxfile.Header, _ map[uint32][]byte) { h.MinTXID, h.MaxTXID = zero+1, zero+1 }))
	if left := p.h.once(); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	all := p.consumer()
	var own []string
	for _, r := range all.Records {
		if r.Stream.Cell == p.c.Scope() && r.Position.TXID == zero+1 && r.Body.Kind() != "watermark" {
			own = append(own, spellBody(r.Body))
		}
	}
	p.wants(own, "schema kv/2", "schema t/2", "snapshot kv/2 0", "snapshot t/2 1", "end tables 2")
	src := consumer.Source{Scope: p.c.Scope(), DB: other.DB(), Epoch: 1, TXID: zero + 1}
	diffs, err := all.Compare(t.Context(), src)
	p.must(err)
	for _, d := range append(diffs, all.Certified(src)...) {
		t.Error(d)
	}
}

// Whatever lies at a file's name, on disk and in the bucket, before the whole
// file does: no panic, nothing of it exported, few requests, and the good file
// is taken when it comes.
func TestLTX04(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":            func([]byte) []byte { return nil },
		"50 bytes":         func(b []byte) []byte { return b[:50] },
		"100 bytes":        func(b []byte) []byte { return b[:100] },
		"106 bytes":        func(b []byte) []byte { return b[:106] },
		"one byte short":   func(b []byte) []byte { return b[:len(b)-1] },
		"trailer zeroed":   func(b []byte) []byte { return append(b[:len(b)-16], make([]byte, 16)...) },
		"one bit flipped":  func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"followed by more": func(b []byte) []byte { return append(b, "tail"...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTape(t)
			p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
			p.unit(filler("t", 50, "i, hex(randomblob(20))"))
			p.unit(`DELETE FROM t WHERE id > 40`)
			p.stage(`UPDATE t SET v = 'five' WHERE id < 20`)
			good, err := os.ReadFile(p.localFile(5))
			p.must(err)
			p.place(5, damage(bytes.Clone(good)))
			dir := p.c.LTXDir()
			p.must(os.Mkdir(filepath.Join(dir, ltxfile.FileName(7, 7)), 0o755))
			for _, foreign := range []string{"ffffffffffffffff-ffffffffffffffff.ltx.bak", "000000000000000A-000000000000000A.ltx", "x.ltx", "0000000000000009.ltx"} {
				p.must(os.WriteFile(filepath.Join(dir, foreign), good, 0o644))
			}
			before := p.calls()
			reason := p.stuck(60)
			if !strings.Contains(reason, ltxfile.FileName(5, 5)) && !strings.Contains(reason, "txid 5") {
				t.Errorf("the reason names no file: %s", reason)
			}
			// The back-off makes it six or seven attempts.
			if n := p.calls() - before; n > 120 {
				t.Errorf("%d requests in 60 rounds over a file that does not change", n)
			}
			if got := p.records(p.consumer(), 1, 5); len(got) > 0 {
				t.Errorf("exported from a damaged file: %q", got)
			}
			if name != "one bit flipped" { // an object with the right checksum at its end counts as equal
				// The node's file is whole again before the bucket's.
				p.must(os.WriteFile(p.localFile(5), good, 0o644))
				p.stuck(20)
			}
			p.place(5, good)
			p.wants(p.export(), "rows t/1 "+strings.Repeat("U", 19))
		})
	}
}

// The largest txid is a name like any other: it is pending, not a reason to
// stop.
func TestLTX04LargestName(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
	p.must(os.WriteFile(filepath.Join(p.c.LTXDir(), "ffffffffffffffff-ffffffffffffffff.ltx"), []byte("x"), 0o644))
	p.stage(`INSERT INTO t VALUES(1, 'a')`)
	if reason := p.stuck(20); !strings.HasPrefix(reason, string(exporter.StatePending)) {
		t.Errorf("reason: %s", reason)
	}
	p.equal(p.c)
}

// calls counts the requests to the fleet bucket.
func (p *tape) calls() int {
	n := 0
	for _, op := range []string{objstore.OpGet, objstore.OpList, objstore.OpPut} {
		n += p.fault.Calls(op)
	}
	return n
}

// A file that is broken in every copy is got over by a full image of the same
// residency: the stream re-bases on it.
func TestLTX02FullImage(t *testing.T) {
	t.Parallel()
	p := newTape(t, "page_size(1024)")
	p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`, filler("t", 20, "i, 'v'||i"))
	before := p.pages()
	p.stage(filler("t", 100, "i+100, hex(randomblob(50))"))
	b, err := os.ReadFile(p.localFile(p.c.TXID()))
	p.must(err)
	p.place(p.c.TXID(), p.edit(b, func(_ *ltxfile.Header, pages map[uint32][]byte) { delete(pages, before+3) }))
	p.stuck(30)
	_, err = p.c.FullImage()
	p.must(err)
	p.must(p.c.Upload(t.Context()))
	if left := p.h.once(); len(left) > 0 {
		t.Fatalf("a full image does not carry the stream on: %v", left)
	}
	p.same(p.c)
}
