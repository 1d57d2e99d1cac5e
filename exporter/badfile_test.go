package exporter_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"celldexport/exporter"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// pair is a cell that something is wrong with, and one beside it.
type pair struct {
	*world
	a          *host
	bad, other *celldsim.Cell
}

// newPair makes both cells, exports what they hold so far and leaves the
// exporter running.
func newPair(t *testing.T) *pair {
	p := &pair{world: newWorld(t, celldsim.V03)}
	p.a = p.host("node-a")
	p.bad, p.other = p.a.activate("bad"), p.a.activate("other")
	p.write(p.bad, createItems, insertTwo)
	p.write(p.other, createItems, insertTwo)
	p.a.run()
	p.a.sync()
	return p
}

// captured writes a transaction and captures it; the file is not uploaded.
func (p *pair) captured(sql string) (txid uint64, path string) {
	p.t.Helper()
	p.must(p.bad.Exec(sql))
	txids, err := p.bad.Capture()
	p.must(err)
	if len(txids) != 1 {
		p.t.Fatalf("captured %v", txids)
	}
	return txids[0], filepath.Join(p.bad.LTXDir(), ltxfile.FileName(txids[0], txids[0]))
}

// put stores an object of the bad cell's epoch under level 0.
func (p *pair) put(minTXID, maxTXID uint64, b []byte) string {
	p.t.Helper()
	key := celld.LTXKey(p.bad.Scope(), p.bad.Epoch(), 0, minTXID, maxTXID)
	_, err := objstore.PutBytes(p.t.Context(), p.store, key, b, objstore.PutOptions{})
	p.must(err)
	return key
}

// trouble waits until the bad cell's state says all of the parts, while the
// other cell goes on.
func (p *pair) trouble(parts ...string) exporter.StreamStatus {
	p.t.Helper()
	p.write(p.other, fmt.Sprintf(`INSERT INTO items VALUES('t%d',1)`, p.other.TXID()))
	var found exporter.StreamStatus
	p.until(fmt.Sprintf("a state of %s says %q", p.bad.Scope(), parts), func() bool {
		s := p.a.e.Status()
		i := slices.IndexFunc(s.Trouble, func(st exporter.StreamStatus) bool {
			return st.Cell == p.bad.Scope() && containsAll(st.Status.Reason, parts)
		})
		if i < 0 || s.Streams[exporter.StateExported] != 1 {
			return false
		}
		found = s.Trouble[i]
		return true
	})
	p.noticed(found.Status)
	return found
}

// noticed holds a state to what every state in trouble must have.
func (p *pair) noticed(st exporter.Status) {
	p.t.Helper()
	if st.Since.IsZero() || st.State == "" {
		p.t.Errorf("a state without age: %+v", st)
	}
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// recovered waits until both cells are exported and compares them.
func (p *pair) recovered() {
	p.t.Helper()
	p.a.sync()
	p.a.halt()
	p.equal(p.bad, p.other)
}

// damage is a way in which a file is not what it should be.
type damage struct {
	name string
	do   func(b []byte) []byte
	says string
}

func damages() []damage {
	return []damage{
		{"torn", func(b []byte) []byte { return b[:len(b)/2] }, "corrupt"},
		{"empty", func([]byte) []byte { return nil }, "corrupt"},
		{"truncated by one byte", func(b []byte) []byte { return b[:len(b)-1] }, "corrupt"},
		{"a flipped bit in a page", func(b []byte) []byte { b[len(b)/2] ^= 4; return b }, "corrupt"},
		{"a flipped bit in the header", func(b []byte) []byte { b[15] ^= 1; return b }, "corrupt"},
		{"garbage after the end", func(b []byte) []byte { return append(b, b[:32]...) }, "corrupt"},
	}
}

// A damaged local file does not matter: its object is read instead.
func TestDamagedLocalFile(t *testing.T) {
	t.Parallel()
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			txid, path := p.captured(`INSERT INTO items VALUES('c',3)`)
			whole, err := os.ReadFile(path)
			p.must(err)
			p.must(os.WriteFile(path, d.do(bytes.Clone(whole)), 0o644))
			p.put(txid, txid, whole)
			p.recovered()
		})
	}
}

// A damaged file that was uploaded as it is stops its stream and no other,
// until the object is whole again.
func TestDamagedEverywhere(t *testing.T) {
	t.Parallel()
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			txid, path := p.captured(`INSERT INTO items VALUES('c',3)`)
			whole, err := os.ReadFile(path)
			p.must(err)
			broken := d.do(bytes.Clone(whole))
			p.must(os.WriteFile(path, broken, 0o644))
			key := p.put(txid, txid, broken)
			p.trouble(key, d.says)
			if got := story(p.consumer(), p.bad.Scope(), 1); strings.Contains(got, fmt.Sprintf("%d rows", txid)) {
				t.Errorf("something of a damaged file was exported: %s", got)
			}
			p.put(txid, txid, whole)
			p.recovered()
		})
	}
}

// A file that stays damaged is passed over as soon as a later one holds every
// page: the stream re-bases there.
func TestDamagedForGood(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	txid, path := p.captured(`INSERT INTO items VALUES('c',3)`)
	broken := []byte("this is no LTX file, and never will be one")
	p.must(os.WriteFile(path, broken, 0o644))
	key := p.put(txid, txid, broken)
	p.trouble(key)
	next, path := p.captured(`INSERT INTO items VALUES('d',4)`)
	whole, err := os.ReadFile(path)
	p.must(err)
	p.put(next, next, whole)
	p.trouble(key)
	next, err = p.bad.FullImage()
	p.must(err)
	whole, err = os.ReadFile(filepath.Join(p.bad.LTXDir(), ltxfile.FileName(next, next)))
	p.must(err)
	p.put(next, next, whole)
	next, path = p.captured(`INSERT INTO items VALUES('e',5)`)
	whole, err = os.ReadFile(path)
	p.must(err)
	p.put(next, next, whole)
	p.recovered()
	if got := story(p.consumer(), p.bad.Scope(), 1); !strings.Contains(got, "end stream") || !strings.HasSuffix(got, "rows items/1 I") {
		t.Errorf("story: %s", got)
	}
}

// forge writes a file of one transaction with given pages.
func forge(t *testing.T, path string, change func(h *ltxfile.Header, pages map[uint32][]byte)) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := make(map[uint32][]byte)
	info, err := ltxfile.Decode(bytes.NewReader(b), int64(len(b)), func(pgno uint32, data []byte) error {
		pages[pgno] = bytes.Clone(data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	change(&info.Header, pages)
	var out bytes.Buffer
	w, err := ltxfile.NewWriter(&out, info.Header, ltxfile.Frame)
	if err != nil {
		t.Fatal(err)
	}
	for pgno := uint32(1); pgno <= info.Commit; pgno++ {
		if page, ok := pages[pgno]; ok {
			if err := w.WritePage(pgno, page); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Close(0); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A file with valid checksums that says what cannot be.
func TestFileThatLies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(h *ltxfile.Header, pages map[uint32][]byte)
		says   string
	}{
		{"a page that is no b-tree", func(_ *ltxfile.Header, pages map[uint32][]byte) {
			for pgno, page := range pages {
				if pgno > 1 {
					clear(page)
					page[0] = 0x77
				}
			}
		}, "corrupt"},
		{"cells beyond the page", func(_ *ltxfile.Header, pages map[uint32][]byte) {
			for pgno, page := range pages {
				if pgno > 1 && (page[0] == 0x0d || page[0] == 0x0a) {
					binary.BigEndian.PutUint16(page[8:], 0xffff)
				}
			}
		}, "corrupt"},
		{"pages of another size", func(h *ltxfile.Header, pages map[uint32][]byte) {
			h.PageSize = 1024
			for pgno, page := range pages {
				pages[pgno] = page[:1024]
			}
		}, "pages of 1024 bytes"},
		{"pages that are missing", func(h *ltxfile.Header, _ map[uint32][]byte) { h.Commit += 5 }, "is missing"},
		{"another transaction's header", func(h *ltxfile.Header, _ map[uint32][]byte) { h.MinTXID++; h.MaxTXID++ }, "its header says"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			txid, path := p.captured(`INSERT INTO items VALUES('c',3)`)
			whole, err := os.ReadFile(path)
			p.must(err)
			lie := forge(t, path, tt.change)
			p.must(os.WriteFile(path, lie, 0o644))
			p.put(txid, txid, lie)
			p.trouble(tt.says)
			p.must(os.WriteFile(path+".tmp", whole, 0o644))
			p.must(os.Rename(path+".tmp", path))
			p.put(txid, txid, whole)
			p.recovered()
		})
	}
}

// Two files of one transaction with different pages are two writers: the
// stream stops and says so.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	txid, path := p.captured(`INSERT INTO items VALUES('c',3)`)
	whole, err := os.ReadFile(path)
	p.must(err)
	p.put(txid, txid, forge(t, path, func(_ *ltxfile.Header, pages map[uint32][]byte) {
		for pgno, page := range pages {
			if i := bytes.Index(page, []byte("c\x03")); pgno > 1 && i >= 0 {
				page[i] = 'x'
			}
		}
	}))
	p.trouble("two writers", path)
	p.put(txid, txid, whole)
	p.recovered()
}

// Objects that overlap what was exported, and such that come out of order.
func TestOverlapAndOrder(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.captured(`INSERT INTO items VALUES('c',3)`)
	p.must(p.bad.Upload(t.Context()))
	p.a.sync()
	_, _, err := p.bad.Compact(t.Context(), 256) // over what is exported, and
	p.must(err)
	first, firstPath := p.captured(`INSERT INTO items VALUES('d',4)`)
	second, secondPath := p.captured(`UPDATE items SET qty = 40 WHERE sku = 'd'`)
	one, err := os.ReadFile(firstPath)
	p.must(err)
	two, err := os.ReadFile(secondPath)
	p.must(err)
	p.put(second, second, two)
	p.trouble(fmt.Sprintf("txid %d is not covered", first))
	p.put(first, first, one)
	p.recovered()
}

// Names that celld does not write are passed over, in the tree and in the
// bucket; one that looks like an LTX object and is none stops its cell.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, name := range []string{"notes.txt", "0000000000000001-0000000000000003.ltx", "00000000000000zz-00000000000000zz.ltx", "x.ltx.tmp"} {
		p.must(os.WriteFile(filepath.Join(p.bad.LTXDir(), name), []byte("?"), 0o644))
	}
	for _, dir := range []string{".restore-x/db", "peerlog/node-z/1", "not a cell", "lost+found", p.bad.Scope() + "/ltx/e0", p.bad.Scope() + "/ltx/e00007", p.bad.Scope() + "/ltx/old"} {
		p.must(os.MkdirAll(filepath.Join(p.a.settings.Watch, dir), 0o755))
	}
	_, err := objstore.PutBytes(t.Context(), p.store, "cells/"+p.bad.Scope()+"/ltx/e1/README", []byte("?"), objstore.PutOptions{})
	p.must(err)
	p.write(p.bad, `INSERT INTO items VALUES('c',3)`)
	p.a.sync()
	p.a.halt()
	p.a.run() // lists everything
	p.write(p.bad, `INSERT INTO items VALUES('d',4)`)
	p.recovered()
}

// blindFS cannot read some directories.
type blindFS struct {
	ltxtail.OS
	blind func(name string) bool
}

func (f blindFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.blind(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.OS.ReadDir(name)
}

// A directory that cannot be read is named; nothing else is held up, and its
// files are found when it can be read again.
func TestUnreadableDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	bad, other := a.activate("bad"), a.activate("other")
	for _, c := range []*celldsim.Cell{bad, other} {
		w.write(c, createItems, insertTwo)
	}
	a.fs = blindFS{blind: func(name string) bool { return strings.HasPrefix(name, filepath.Dir(bad.LTXDir())) }}
	left := a.briefly(60)
	if len(left) != 1 || !containsAll(left[0].Cell+left[0].Reason, []string{bad.LTXDir()}) {
		t.Errorf("left: %v", left)
	}
	w.equal(other)
	a.fs = nil
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(bad, other)
}

// A watch directory that is not there, as after a wrong mount, is not taken for
// one without cells.
func TestWatchDirectoryIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	away := a.settings.Watch + ".away"
	w.must(os.Rename(a.settings.Watch, away))
	registry := prometheus.NewPedanticRegistry()
	a.rig = func(o *exporter.Options) { o.Registry = registry }
	a.run()
	a.status("a round went by", func(s exporter.Summary) bool { return s.Rounds > 0 && s.Watch.RootError != "" })
	if why := a.e.Unready(); !strings.Contains(why, "watch directory cannot be read") || !strings.Contains(why, a.settings.Watch) {
		t.Errorf("without its directory it is ready, or says %q", why)
	}
	if n := gauges(t, registry)["unreadable_directories"]; n != 1 {
		t.Errorf("%v directories are unreadable", n)
	}
	w.must(os.Rename(away, a.settings.Watch))
	w.until("it is ready", func() bool { return a.e.Unready() == "" })
	a.sync()
	a.halt()
	w.equal(c)
}

// goneFS is a node's disk from which files vanish after they were opened for
// the first time.
type goneFS struct {
	ltxtail.OS
	mu   sync.Mutex
	seen map[string]bool
}

func (f *goneFS) Open(name string) (ltxtail.ReadFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f.seen[name] = true
	return f.OS.Open(name)
}

// A file that vanishes between its comparison and its reading, as with an
// eviction, is no failure: the object holds the same.
func TestFileVanishesWhileItIsProven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	a.fs = &goneFS{seen: make(map[string]bool)}
	c := a.activate("one")
	w.write(c, createItems, insertTwo)
	if left := a.once(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.equal(c)
	if log := w.log.String(); strings.Contains(log, "does not go on") {
		t.Errorf("it was a failure: %s", log)
	}
}
