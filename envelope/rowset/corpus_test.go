package rowset

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/internal/ledger"
)

// brokenImages shows every step-th of the broken databases that SQLite is
// fuzzed with; they come with the module that SQLite itself comes in.
func brokenImages(t *testing.T, step int, visit func(name string, id int64, image []byte)) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "modernc.org/sqlite").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "testdata", "tcl")
	if err != nil {
		t.Skip("SQLite's fuzz corpus is not here: no module source")
	}
	for _, name := range []string{"fuzzdata3.db", "fuzzdata7.db"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Skip("SQLite's fuzz corpus is not here: ", err)
		}
		conn, err := sqlite.OpenConn("file:"+filepath.Join(dir, name)+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = sqlitex.ExecuteTransient(conn, "SELECT dbid, dbcontent FROM db", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
			if n++; n%step == 0 {
				image := make([]byte, st.ColumnLen(1))
				st.ColumnBytes(1, image)
				visit(name, st.ColumnInt64(0), image)
			}
			return nil
		}})
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// imageUnit is an image as the pages of a unit; nil when its header promises
// pages of no possible size.
func imageUnit(t *testing.T, image []byte) (*shadow.Images, uint32) {
	t.Helper()
	if len(image) < 100 {
		return nil, 0
	}
	size := int(image[16])<<8 | int(image[17])
	if size == 1 {
		size = 65536
	}
	if !shadow.ValidPageSize(uint32(size)) {
		return nil, 0
	}
	images := shadow.NewImages(uint32(size), 1<<30, t.TempDir())
	n := (len(image) + size - 1) / size
	for i := range n {
		page := make([]byte, size)
		copy(page, image[i*size:])
		if err := images.Add(uint32(i+1), page); err != nil {
			t.Fatal(err)
		}
	}
	return images, uint32(n)
}

// named says that an error about content says where.
func named(err error) bool {
	var where *diffpage.CorruptError
	return errors.Is(err, diffpage.ErrCorrupt) && errors.As(err, &where) && (where.Table != "" || where.Page != 0)
}

// fate is what became of an image.
type fate int

const (
	refused fate = iota
	stopped
	published
)

// TestBrokenImages takes the images through the whole way from pages to a
// consumer: refused with an error that names table or page, and nothing
// moved, or published whole, in bounds. A normal run takes a sample,
// EXPORTD_SOAK_UNITS all of them.
func TestBrokenImages(t *testing.T) {
	step := 29
	switch {
	case os.Getenv("EXPORTD_SOAK_UNITS") != "":
		step = 1
	case testing.Short():
		step = 290
	}
	shared := new(diffpage.Shared)
	ends := make(map[fate]int)
	var mostBytes uint64
	var mostTime time.Duration
	brokenImages(t, step, func(name string, id int64, image []byte) {
		var end fate
		took := processorTime(t, func() {
			bytes := allocated(func() { end = brokenImage(t, shared, name, id, image) })
			mostBytes = max(mostBytes, bytes)
			if bytes > 2<<20+32*uint64(len(image)) {
				t.Errorf("%s, image %d: %d bytes allocated for %d", name, id, bytes, len(image))
			}
		})
		if mostTime = max(mostTime, took); took > 2*time.Second {
			t.Errorf("%s, image %d: %v of a processor for %d bytes", name, id, took, len(image))
		}
		ends[end]++
	})
	t.Logf("%d refused, %d stopped at a row, %d published; at most %d bytes allocated and %v of a processor", ends[refused], ends[stopped], ends[published], mostBytes, mostTime)
	if ends[refused] == 0 || ends[published] == 0 {
		t.Error("the corpus is not what it was")
	}
}

// brokenImage takes one image the whole way and says what became of it.
func brokenImage(t *testing.T, shared *diffpage.Shared, name string, id int64, image []byte) fate {
	images, commit := imageUnit(t, image)
	if images == nil {
		return refused
	}
	sh, err := shadow.New(new(inMemory), "image", 0)
	if err != nil {
		t.Fatal(err)
	}
	base, err := diffpage.NewBase(sh, diffpage.WithShared(shared), diffpage.WithTempDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	change, err := base.Diff(images, commit)
	if err != nil {
		if !named(err) {
			t.Errorf("%s, image %d: refused without a name: %v", name, id, err)
		}
		if sh.Commit() != 0 || sh.Staged() != 0 || len(base.Schema().Tables) != 0 {
			t.Errorf("%s, image %d: refused and yet the state moved", name, id)
		}
		return refused
	}
	end := published
	switch err := publish(t, change, len(image)); {
	case err == nil:
	case named(err):
		end = stopped
	default:
		t.Errorf("%s, image %d: %v", name, id, err)
	}
	if err := errors.Join(change.Close(), sh.Close()); err != nil || sh.Commit() != 0 {
		t.Errorf("%s, image %d: the state moved without being told to, %v", name, id, err)
	}
	return end
}

// allocated is how many bytes f asks for, whatever becomes of them.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// processorTime is what f takes of it, whatever else the machine is doing.
func processorTime(t *testing.T, f func()) time.Duration {
	t.Helper()
	now := func() time.Duration {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			t.Fatal(err)
		}
		return time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	start := now()
	f()
	return now() - start
}

// publish encodes a unit the way the product does and gives its records to a
// consumer. Nothing is to be larger than a broken image can make believable.
func publish(t *testing.T, change *diffpage.Change, size int) error {
	t.Helper()
	opt := Options{Scope: "Shelf:a17", MaxRecordBytes: 1 << 16, MemoryBytes: 1 << 16, TempDir: t.TempDir()}
	plan, err := NewPlan(change.After(), change.Before(), nil, ledger.Mark{Epoch: 4, TXID: 1}, ledger.Mark{Epoch: 4}, opt)
	if err != nil {
		return err
	}
	var lines []string
	total := 0
	_, err = plan.Encode(testEnvelope(1), change, nil, func(e *envelope.Encoded) error {
		line := string(e.AppendJSON(nil))
		lines, total = append(lines, line), total+len(line)
		return nil
	})
	if err != nil {
		return err
	}
	if total > 16*size+1<<20 {
		t.Errorf("%d bytes of records from an image of %d", total, size)
	}
	addAll(t, apply.New(), lines)
	return nil
}

// inMemory is a shadow's file.
type inMemory struct{ data []byte }

func (m *inMemory) ReadAt(b []byte, off int64) (int, error) {
	return strings.NewReader(string(m.data)).ReadAt(b, off)
}

func (m *inMemory) WriteAt(b []byte, off int64) (int, error) { return copy(m.data[off:], b), nil }
func (m *inMemory) Sync() error                              { return nil }
func (m *inMemory) Close() error                             { return nil }
func (m *inMemory) Truncate(n int64) error {
	m.data = append(m.data, make([]byte, max(0, n-int64(len(m.data))))...)[:n]
	return nil
}
