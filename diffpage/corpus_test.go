package diffpage

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/diffpage/shadow"
)

// corpus is the directory of SQLite's own test data, which comes with the
// module that SQLite itself comes in.
func corpus(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "modernc.org/sqlite").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "testdata", "tcl")
	if err != nil {
		t.Skip("SQLite's fuzz corpus is not here: no module source")
	}
	if _, err := os.Stat(filepath.Join(dir, "fuzzdata3.db")); err != nil {
		t.Skip("SQLite's fuzz corpus is not here: ", err)
	}
	return dir
}

// TestCorpus opens the broken databases that SQLite is fuzzed with: each is
// refused, or read to the end within bounds, or one of its rows is. Every
// image is also a unit on top of the one before it. A normal run takes a
// sample, EXPORTD_SOAK_UNITS all of them.
func TestCorpus(t *testing.T) {
	step := 23
	if os.Getenv("EXPORTD_SOAK_UNITS") != "" {
		step = 1
	}
	opened, refused, read := 0, 0, 0
	var most ceiling
	for _, name := range []string{"fuzzdata3.db", "fuzzdata7.db"} {
		conn, err := sqlite.OpenConn("file:"+filepath.Join(corpus(t), name)+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		var before []byte
		shared := new(Shared)
		err = sqlitex.ExecuteTransient(conn, "SELECT dbcontent FROM db", &sqlitex.ExecOptions{ResultFunc: func(st *sqlite.Stmt) error {
			if n++; n%step != 0 && n%step != 1%step {
				return nil
			}
			image := make([]byte, st.ColumnLen(0))
			st.ColumnBytes(0, image)
			image = whole(image)
			most.within(t, len(image), func() {
				if b := openImage(t, image, shared); b != nil {
					opened++
					if readAll(t, b) {
						read++
					}
				} else {
					refused++
				}
			})
			most.within(t, len(image)+len(before), func() {
				if b := openImage(t, before, shared); b != nil && len(image) >= 100 && len(image)%pageSizeOf(image) == 0 {
					if shadow.ValidPageSize(uint32(pageSizeOf(image))) {
						images, commit := unitOf(t, nil, image)
						checkUnit(t, b, pagesOf(t, images, commit))
					}
				}
			})
			before = image
			return nil
		}})
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("%s, image %d", name, n)
		}
	}
	t.Logf("%d opened, %d of them read to the end, %d refused; at most %d bytes allocated, %d per byte of an image above the start, %v of a processor", opened, read, refused, most.bytes, most.perByte, most.time)
	if opened == 0 || refused == 0 {
		t.Error("the corpus is not what it was")
	}
}

// ceiling is the most that any image took.
type ceiling struct {
	bytes, perByte uint64
	time           time.Duration
}

// within holds f to what an image of a size may take: a broken one is to cost
// no more than a good one.
func (b *ceiling) within(t *testing.T, size int, f func()) {
	t.Helper()
	var bytes uint64
	took := processorTime(t, func() { bytes = allocated(f) })
	const start = 1 << 20
	b.bytes, b.time = max(b.bytes, bytes), max(b.time, took)
	if bytes > start {
		b.perByte = max(b.perByte, (bytes-start)/uint64(max(1, size)))
	}
	if bytes > start+16*uint64(size) || took > 2*time.Second {
		t.Errorf("%d bytes allocated and %v of a processor for %d bytes", bytes, took, size)
	}
}

// whole fills up the last page, where an image is cut.
func whole(image []byte) []byte {
	if size := pageSizeOf(image); shadow.ValidPageSize(uint32(size)) && len(image)%size > 0 {
		image = append(image, make([]byte, size-len(image)%size)...)
	}
	return image
}

// openImage is a base over an image, nil when it is refused.
func openImage(t *testing.T, image []byte, shared *Shared) *Base {
	t.Helper()
	sh, err := shadow.New(&memory{data: append([]byte(nil), image...)}, "image", int64(len(image)))
	if err != nil {
		return nil
	}
	b, err := NewBase(sh, WithShared(shared))
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("open: %v", err)
		}
		return nil
	}
	return b
}

// readAll reports whether every row of every readable table could be read.
func readAll(t *testing.T, b *Base) bool {
	t.Helper()
	whole := true
	for _, tab := range b.Schema().Tables {
		err := b.Scan(tab.Name, func(_ Op, _, r Row) error {
			for i := range tab.Columns {
				if _, err := r.Cell(i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			whole = false
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnreadable) {
				t.Fatalf("scan %s: %v", tab.Name, err)
			}
		}
	}
	return whole
}
