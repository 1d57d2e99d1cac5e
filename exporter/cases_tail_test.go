package exporter_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"celldexport/envelope"
	"celldexport/exporter"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// farm stamps many cells out of the files of one: what matters is their
// number, not what they hold.
type farm struct {
	*world
	h *host
	// mould is the cell whose files are copied; files are its files by txid.
	mould *celldsim.Cell
	files map[uint64][]byte
	// direct is the directory of a file store, written to without its care
	// for durability, which costs a test seconds.
	direct string
}

func newFarm(w *world, h *host, units ...string) *farm {
	w.t.Helper()
	f := &farm{world: w, h: h, files: make(map[uint64][]byte)}
	f.mould = w.host("node-of-the-mould").activate("mould")
	f.grow(units...)
	return f
}

// grow adds files to the mould.
func (f *farm) grow(units ...string) {
	f.t.Helper()
	for _, sql := range units {
		f.must(f.mould.Exec(sql))
		_, err := f.mould.Capture()
		f.must(err)
	}
	f.must(f.mould.Upload(f.t.Context()))
	for txid := uint64(1); txid <= f.mould.TXID(); txid++ {
		b, err := os.ReadFile(filepath.Join(f.mould.LTXDir(), ltxfile.FileName(txid, txid)))
		f.must(err)
		f.files[txid] = b
	}
}

// quickDir is a directory in memory where the system has such with room for
// many tests at a time, so that none waits for a disk's syncs: nothing here
// survives a loss of power, and processes that are killed lose no writes.
func quickDir(t *testing.T) string {
	t.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "exporter-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (f *farm) scope(i int) string { return f.fleet.CellID(class, fmt.Sprint("cell ", i)) }

// own makes the host's node the owner of a cell.
func (f *farm) own(i int, epoch uint64) {
	f.t.Helper()
	f.object(celld.OwnKey(f.scope(i)), celld.Own{Node: f.h.settings.Node, Epoch: epoch}.Append(nil))
}

func (f *farm) object(key string, b []byte) {
	f.t.Helper()
	if f.direct != "" {
		name := filepath.Join(f.direct, filepath.FromSlash(key))
		f.must(os.MkdirAll(filepath.Dir(name), 0o755))
		f.must(os.WriteFile(name, b, 0o644))
		return
	}
	_, err := objstore.PutBytes(f.t.Context(), f.store, key, b, objstore.PutOptions{})
	f.must(err)
}

// upload puts files of the mould into the bucket as a cell's.
func (f *farm) upload(i int, epoch, from, to uint64) {
	f.t.Helper()
	for txid := from; txid <= to; txid++ {
		f.object(celld.LTXKey(f.scope(i), epoch, 0, txid, txid), f.files[txid])
	}
}

// capture puts files of the mould onto a node's disk below root as a cell's.
func (f *farm) capture(root string, i int, epoch, from, to uint64) {
	f.t.Helper()
	dir := celld.LTXDir(root, celld.Scope{Cell: f.scope(i)}, epoch)
	f.must(os.MkdirAll(dir, 0o755))
	for txid := from; txid <= to; txid++ {
		name := filepath.Join(dir, ltxfile.FileName(txid, txid))
		f.must(os.WriteFile(name+".tmp", f.files[txid], 0o644))
		f.must(os.Rename(name+".tmp", name))
	}
}

// exports waits until so many streams are exported to what is on the disk.
func (h *host) exports(n int) {
	h.w.t.Helper()
	h.status(fmt.Sprint(n, " streams are exported"), func(s exporter.Summary) bool {
		return s.Streams[exporter.StateExported] == n && s.Watch.Pending == 0
	})
}

// source is a cell whose files up to txid are the mould's.
func (f *farm) source(i int, epoch, txid uint64) consumer.Source {
	return consumer.Source{Scope: f.scope(i), DB: f.mould.DB(), Epoch: epoch, TXID: txid}
}

// whole holds cells against the mould, and the first record of each epoch
// against being its link.
func (f *farm) whole(n int, heads map[uint64]uint64) *consumer.Consumer {
	f.t.Helper()
	got := f.consumer()
	first := make(map[string]*envelope.Record)
	for _, r := range got.Records {
		at := fmt.Sprintf("%s e%d", r.Stream.Cell, r.Position.Epoch)
		if before := first[at]; before == nil || r.Position.Compare(before.Position) < 0 {
			first[at] = r
		}
	}
	newest := uint64(0)
	for epoch, txid := range heads {
		newest = max(newest, epoch)
		for i := range n {
			for _, d := range got.Certified(f.source(i, epoch, txid)) {
				f.t.Fatal(d)
			}
			if r := first[fmt.Sprintf("%s e%d", f.scope(i), epoch)]; r == nil || r.Body.Kind() != envelope.KindLink {
				f.t.Fatalf("cell %d, e%d does not begin with its link", i, epoch)
			}
		}
	}
	for i := 0; i < n; i += max(1, n/10) {
		diffs, err := got.Compare(f.t.Context(), f.source(i, newest, heads[newest]))
		f.must(err)
		for _, d := range diffs {
			f.t.Error(d)
		}
	}
	return got
}

// Directories appear with their files in them before a watch can be set on
// them, one by one and renamed into place already filled, epoch after epoch.
func TestTAIL01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	f := newFarm(w, a, createItems, insertTwo)
	const cells = 120
	for i := range cells {
		f.own(i, 1)
		f.upload(i, 1, 1, 3)
	}
	a.run()
	aside := filepath.Join(filepath.Dir(a.settings.Watch), "aside") // on the same file system
	for i := range cells {
		root := a.settings.Watch
		if i%2 == 1 {
			root = aside
		}
		f.capture(root, i, 1, 1, 3)
		if i%2 == 1 {
			w.must(os.Rename(filepath.Join(aside, f.scope(i)), filepath.Join(a.settings.Watch, f.scope(i))))
		}
		w.must(os.MkdirAll(filepath.Join(a.settings.Watch, f.scope(i), "facets", strings.Repeat("0a", 16), "ltx", "e1"), 0o755))
	}
	a.exports(cells)
	_, err := f.mould.FullImage()
	w.must(err)
	image, err := os.ReadFile(filepath.Join(f.mould.LTXDir(), ltxfile.FileName(4, 4)))
	w.must(err)
	f.files = map[uint64][]byte{1: (&tape{world: w}).edit(image, func(h *ltxfile.Header, _ map[uint32][]byte) { h.MinTXID, h.MaxTXID = 1, 1 })}
	for i := range cells {
		f.own(i, 2)
		f.upload(i, 2, 1, 1)
	}
	for i := range cells {
		f.capture(a.settings.Watch, i, 2, 1, 1)
	}
	a.sync()
	a.halt()
	for _, r := range f.whole(cells, map[uint64]uint64{1: 3, 2: 1}).Records {
		if r.Stream.Facet != "" {
			t.Errorf("a record of facet %s: facets are not exported yet", r.Stream.Facet)
		}
	}
}

// More cells than files may be open.
func TestTAIL02(t *testing.T) {
	t.Parallel()
	bucket := quickDir(t)
	store, err := objstore.NewFile(bucket)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, store, celldsim.V03)
	a := w.host("node-a")
	f := newFarm(w, a, createItems, insertTwo)
	f.direct, a.settings.State = bucket, filepath.Join(quickDir(t), "state")
	const cells = 200
	for i := range cells {
		f.own(i, 1)
		f.upload(i, 1, 1, 3)
		f.capture(a.settings.Watch, i, 1, 1, 3)
	}
	c := a.startChildWith(childSpec{Bucket: bucket, Files: 128, Flush: 500 * time.Millisecond})
	until(t, "the first object", func() bool {
		names, err := filepath.Glob(filepath.Join(bucket, "export/changes/node-a/*/*/*/*/*.parquet"))
		w.must(err)
		return len(names) > 0
	})
	w.must(c.end())
	if strings.Contains(c.log.String(), "too many open files") {
		t.Errorf("the limit was hit:\n%s", c.log.String())
	}
	f.whole(cells, map[uint64]uint64{1: 3})
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// fewWatches is a kernel with a limit of watches.
type fewWatches struct {
	ltxtail.Watcher
	left atomic.Int64
}

func (w *fewWatches) Add(dir string) error {
	if w.left.Add(-1) < 0 {
		return syscall.ENOSPC
	}
	return w.Watcher.Add(dir)
}

// The kernel gives no inotify instance, or no watch more while new cells
// appear: the log says which limit it is, and everything is exported.
func TestTAIL02Limits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		watch func() (ltxtail.Watcher, error)
		limit string
	}{
		"no instance": {func() (ltxtail.Watcher, error) { return nil, syscall.EMFILE }, "max_user_instances"},
		"few watches": {func() (ltxtail.Watcher, error) {
			w, err := ltxtail.Inotify()
			few := &fewWatches{Watcher: w}
			few.left.Store(25)
			return few, err
		}, "max_user_watches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, celldsim.V03)
			a := w.host("node-a")
			f := newFarm(w, a, createItems, insertTwo)
			const cells = 60
			start := func(i int) {
				f.own(i, 1)
				f.upload(i, 1, 1, 3)
				f.capture(a.settings.Watch, i, 1, 1, 3)
			}
			for i := range cells / 3 {
				start(i)
			}
			log := &logged{}
			a.rig = func(o *exporter.Options) { o.Watch, o.Logger = c.watch, slog.New(slog.NewTextHandler(log, nil)) }
			a.run()
			a.sync()
			for i := cells / 3; i < cells; i++ {
				start(i)
			}
			a.exports(cells)
			if !a.e.Status().Watch.Polling || !log.has(c.limit) {
				t.Errorf("polling %v, the log names %s: %v", a.e.Status().Watch.Polling, c.limit, log.has(c.limit))
			}
			a.halt()
			f.whole(cells, map[uint64]uint64{1: 3})
		})
	}
}

// Files under temporary names, files written in place, hard links and what a
// crash left: each is exported once and whole, or not at all.
func TestTAIL03(t *testing.T) {
	t.Parallel()
	p := newTape(t)
	w := p.world
	p.stage(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
	files := make(map[uint64][]byte)
	for txid := uint64(3); txid <= 5; txid++ {
		w.must(p.c.Exec(fmt.Sprintf(`INSERT INTO t VALUES(%d, hex(randomblob(500)))`, txid)))
		_, err := p.c.Capture()
		w.must(err)
		files[txid] = p.file(txid)
	}
	for txid := range files {
		w.must(os.Remove(p.localFile(txid)))
	}
	upload := func(txid uint64) {
		_, err := objstore.PutBytes(t.Context(), p.store, p.objectKey(txid), files[txid], objstore.PutOptions{})
		w.must(err)
	}
	slowly := func(name string, b []byte) {
		f, err := os.Create(name)
		w.must(err)
		for part := range slices.Chunk(b, len(b)/3+1) {
			_, err := f.Write(part)
			w.must(err)
			time.Sleep(30 * time.Millisecond)
		}
		w.must(f.Close())
	}
	p.h.run()
	p.h.sync()
	w.must(os.WriteFile(p.localFile(9)+".tmp", files[3], 0o644)) // an orphan
	slowly(p.localFile(3)+".tmp", files[3])
	time.Sleep(50 * time.Millisecond)
	if n := p.h.e.Status().Watch.Pending; n != 0 {
		t.Errorf("%d files pending, all of them have temporary names", n)
	}
	w.must(os.Rename(p.localFile(3)+".tmp", p.localFile(3)))
	upload(3)
	upload(4) // whole in the bucket while the local file is torn
	slowly(p.localFile(4), files[4])
	p.h.sync()
	original := filepath.Join(filepath.Dir(p.h.settings.Watch), "original")
	w.must(os.WriteFile(original, files[5], 0o644))
	if err := os.Link(original, p.localFile(5)); err != nil {
		w.must(os.WriteFile(p.localFile(5), files[5], 0o644)) // another file system
	}
	upload(5)
	p.h.sync()
	p.h.halt()
	got := w.equal(p.c)
	for txid := uint64(3); txid <= 5; txid++ {
		n := 0
		for _, r := range got.Records {
			if r.Position.TXID == txid && r.Body.Kind() == envelope.KindRows {
				n++
			}
		}
		if n != 1 {
			t.Errorf("txid %d is exported %d times", txid, n)
		}
	}
}

// vanishing is a view of the node's tree whose files vanish between their
// listing and their opening.
type vanishing struct {
	ltxtail.OS
	gone string
}

func (v vanishing) Open(name string) (ltxtail.ReadFile, error) {
	if filepath.Base(name) == v.gone {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return v.OS.Open(name)
}

// Files that were compacted away while nobody looked, and one that vanishes
// between its listing and its opening.
func TestTAIL04(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *tape {
		t.Helper()
		p := newTape(t)
		p.unit(`CREATE TABLE t(id INTEGER PRIMARY KEY, v)`)
		for i := range 8 {
			p.stage(fmt.Sprintf(`INSERT INTO t VALUES(%d, 'v')`, i))
		}
		p.export()
		if p.c.TXID() != 10 {
			t.Fatalf("txid %d, the case needs 10", p.c.TXID())
		}
		for i := range 20 {
			p.stage(fmt.Sprintf(`UPDATE t SET v = 'w%d' WHERE id = %d`, i, i%8))
		}
		return p
	}
	remove := func(p *tape, from, to uint64) {
		for txid := from; txid <= to; txid++ {
			p.must(os.Remove(p.localFile(txid)))
			p.must(p.store.Delete(p.t.Context(), p.objectKey(txid)))
		}
	}
	t.Run("compacted", func(t *testing.T) {
		t.Parallel()
		p := begin(t)
		first, last, err := p.c.Compact(t.Context(), 10)
		p.must(err)
		if first != 1 || last != 10 {
			t.Fatalf("compacted %d to %d, the case needs 1 to 10", first, last)
		}
		if first, last, err = p.c.Compact(t.Context(), 20); err != nil || first != 11 || last != 30 {
			t.Fatalf("compacted %d to %d (%v), the case needs 11 to 30", first, last, err)
		}
		remove(p, 11, 28)
		p.wants(p.export(), "rows t/1 "+strings.Repeat("U", 8))
		for _, r := range p.consumer().Records {
			if k := r.Body.Kind(); r.Position.TXID > 10 && k != envelope.KindRows && k != envelope.KindWatermark {
				t.Errorf("a %s record", k)
			}
		}
	})
	t.Run("vanished after the listing", func(t *testing.T) {
		t.Parallel()
		p := begin(t)
		e, err := exporter.New(t.Context(), exporter.Options{
			Settings: p.h.settings, Logger: slog.New(slog.DiscardHandler), Fleet: p.fault, Export: p.fault, Interval: 10 * time.Millisecond,
			FS: vanishing{gone: ltxfile.FileName(15, 15)},
		})
		p.must(err)
		left, err := e.Once(t.Context(), exportTime)
		p.must(errors.Join(err, e.Close()))
		if len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		p.equal(p.c)
	})
	t.Run("gone everywhere", func(t *testing.T) {
		t.Parallel()
		p := begin(t)
		remove(p, 11, 30)
		p.must(p.c.Exec(`INSERT INTO t VALUES(100, 'after')`))
		_, err := p.c.Capture()
		p.must(err)
		p.must(p.c.Upload(t.Context()))
		// Twice, in two lives: what is gone is told once, and not before
		// looking again has become rare.
		for range 2 {
			const gone = "txids 11 to 30 are neither on the node's disk nor in the bucket"
			left := p.h.onceUntil(func(s exporter.Summary) bool {
				return s.Rounds >= 250 && len(s.Trouble) == 1 && strings.Contains(s.Trouble[0].Status.Reason, gone)
			})
			if len(left) != 1 || left[0].Cell != p.c.Scope() || !strings.Contains(left[0].Reason, gone) {
				t.Errorf("left: %v", left)
			}
		}
		var gaps []envelope.Gap
		for _, r := range p.consumer().Records {
			if r.Position.TXID > 10 {
				t.Errorf("a %s record at txid %d, over a hole", r.Body.Kind(), r.Position.TXID)
			}
			if g, ok := r.Body.(*envelope.Gap); ok {
				gaps = append(gaps, *g)
			}
		}
		if len(gaps) != 1 || gaps[0].From.TXID != 10 || gaps[0].To.TXID != 30 {
			t.Errorf("gaps %+v, want one over (10,30]", gaps)
		}
		// The cell's own next residency holds what was in the hole.
		p.wake(true)
		if left := p.h.once(); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
		p.equal(p.c)
	})
}

// file is the local file of a txid.
func (p *tape) file(txid uint64) []byte {
	p.t.Helper()
	b, err := os.ReadFile(p.localFile(txid))
	p.must(err)
	return b
}

// until waits for something to come about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come about; what every goroutine does:\n%s", what, goroutines())
		}
	}
}
