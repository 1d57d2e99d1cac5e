package celldsim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCaptureFilesEqualDatabase(t *testing.T) {
	for seed, pragmas := range [][]string{
		{"page_size(512)"},
		{"page_size(1024)", "auto_vacuum(1)"},
		{"page_size(4096)"},
		{"page_size(4096)", "encoding('UTF-16le')"},
		{"page_size(8192)", "encoding('UTF-16be')", "auto_vacuum(2)"},
		{"page_size(65536)"},
	} {
		t.Run(fmt.Sprint(pragmas), func(t *testing.T) {
			f := newFleet(t, Config{Layout: V06, TruncatePages: 300})
			n := newNode(t, f, "node-a")
			c, err := n.ActivateWith(t.Context(), Activation{Cell: f.CellID("Shelf", "a"), Pragmas: pragmas})
			must(t, err)
			checkForm(t, c, pragmas)
			w := NewWorkload(WorkloadConfig{Seed: uint64(seed), Vacuum: true, InvalidText: true, Scope: c.Scope()})
			for i := range 40 {
				must(t, w.Run(t.Context(), c.DB(), 1+i%4))
				capture(t, c)
			}
			checkFiles(t, c)
			files := localFiles(t, c)
			if got := len(files); got < 30 || uint64(got) != c.TXID() {
				t.Errorf("%d files for txid %d", got, c.TXID())
			}
			must(t, c.UploadMerged(t.Context()))
			checkBucket(t, f, c.Scope(), dump(t, c))
		})
	}
}

// checkForm holds that the pragmas of a new database took effect.
func checkForm(t *testing.T, c *Cell, pragmas []string) {
	t.Helper()
	for _, p := range append(pragmas, "journal_mode('wal')", "wal_autocheckpoint(0)") {
		name, want, _ := strings.Cut(strings.Trim(p, ")"), "(")
		var got string
		must(t, c.DB().QueryRow("PRAGMA "+name).Scan(&got))
		if got != strings.Trim(want, "'") {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestCaptureHeader(t *testing.T) {
	f := newFleet(t, Config{TruncatePages: -1})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	must(t, c.Exec(`CREATE TABLE t(a); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)`))
	capture(t, c)
	must(t, c.Bump())
	capture(t, c)
	files := localFiles(t, c)
	if len(files) != 3 {
		t.Fatalf("%d files, want 3", len(files))
	}
	first, second, third := files[0].header, files[1].header, files[2].header
	frame := int64(24 + first.PageSize)
	if first.WALOffset != 32 || second.WALOffset != 32+first.WALSize || third.WALOffset != second.WALOffset+second.WALSize {
		t.Errorf("WAL ranges do not follow each other: %d+%d, %d+%d, %d", first.WALOffset, first.WALSize,
			second.WALOffset, second.WALSize, third.WALOffset)
	}
	if third.WALSize != frame || len(files[2].pages) != 1 {
		t.Errorf("a bump gave %d WAL bytes and %d pages, want one frame of %d", third.WALSize, len(files[2].pages), frame)
	}
	if second.WALSize < 4*frame {
		t.Errorf("three commits in one capture cover %d WAL bytes", second.WALSize)
	}
	if first.WALSalt1 != third.WALSalt1 || first.WALSalt2 != third.WALSalt2 {
		t.Error("salts changed within one WAL")
	}
	for i, h := range []uint32{first.Flags, second.Flags, third.Flags} {
		if h != 2 {
			t.Errorf("file %d has flags %#x, want NoChecksum", i+1, h)
		}
	}
	if first.Timestamp <= start.UnixMilli() || third.Timestamp <= first.Timestamp {
		t.Errorf("timestamps %d, %d do not come from the clock", first.Timestamp, third.Timestamp)
	}
}

func TestCaptureFirstFileHoldsOwnTables(t *testing.T) {
	f := newFleet(t, Config{})
	n := newNode(t, f, "node-a")
	c := activate(t, n, f.CellID("Shelf", "a"))
	if c.TXID() != 1 {
		t.Fatalf("txid %d after an activation, want 1", c.TXID())
	}
	full := localFiles(t, c)[0]
	if got := len(full.pages); got != int(full.header.Commit) {
		t.Errorf("first file holds %d of %d pages", got, full.header.Commit)
	}
	if got := capture(t, c); got != nil {
		t.Errorf("a capture without commits gave %v", got)
	}
	var name string
	must(t, c.DB().QueryRow(`SELECT actor_name FROM _cf_METADATA WHERE scope = ?`, c.Scope()).Scan(&name))
	if name != "aisle 9" {
		t.Errorf("actor_name is %q", name)
	}
	deferred, err := n.ActivateWith(t.Context(), Activation{Cell: f.CellID("Shelf", "b"), Deferred: true})
	must(t, err)
	must(t, deferred.Exec(`CREATE TABLE t(a); INSERT INTO t VALUES(1)`))
	if got := capture(t, deferred); !cmp.Equal(got, []uint64{1}) {
		t.Errorf("deferred first capture gave %v", got)
	}
	checkFiles(t, deferred)
}

func TestCaptureSeesNoOpenTransaction(t *testing.T) {
	f := newFleet(t, Config{})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	must(t, c.Exec(`CREATE TABLE t(a)`))
	capture(t, c)
	must(t, c.Exec(`PRAGMA cache_size = 5`)) // spill into the WAL before the commit
	tx, err := c.DB().Begin()
	must(t, err)
	_, err = tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000)
		INSERT INTO t SELECT randomblob(100) FROM n`)
	must(t, err)
	if got := capture(t, c); got != nil {
		t.Errorf("captured %v in an open transaction", got)
	}
	must(t, tx.Rollback())
	must(t, c.Exec(`INSERT INTO t VALUES('after the rollback')`))
	if got := capture(t, c); !cmp.Equal(got, []uint64{3}) {
		t.Errorf("captured %v, want txid 3", got)
	}
	checkFiles(t, c)
	if got := len(localFiles(t, c)[2].pages); got > 2 {
		t.Errorf("%d pages captured, some of them rolled back", got)
	}
}

func TestFullImageMidEpoch(t *testing.T) {
	f := newFleet(t, Config{TruncatePages: -1})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	must(t, c.Exec(`CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(50000))`))
	capture(t, c)
	must(t, c.Exec(`DELETE FROM t; VACUUM; INSERT INTO t VALUES('kept')`))
	txid, err := c.FullImage()
	must(t, err)
	files := localFiles(t, c)
	last := files[len(files)-1]
	if txid != 3 || len(last.pages) != int(last.header.Commit) || last.header.MinTXID != 3 || last.header.MaxTXID != 3 {
		t.Errorf("full image at txid %d holds %d of %d pages", txid, len(last.pages), last.header.Commit)
	}
	if before := files[1].header.Commit; last.header.Commit >= before {
		t.Errorf("database did not shrink: %d pages, then %d", before, last.header.Commit)
	}
	checkFiles(t, c)
	must(t, c.Upload(t.Context()))
	checkBucket(t, f, c.Scope(), dump(t, c))
}

func TestCaptureTruncatesLongWAL(t *testing.T) {
	f := newFleet(t, Config{Layout: V06})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	must(t, c.Exec(`CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(1000000))`))
	if got := capture(t, c); !cmp.Equal(got, []uint64{2, 3}) {
		t.Fatalf("captured %v, want the tail and a full image", got)
	}
	files := localFiles(t, c)
	if h := files[2].header; len(files[2].pages) != int(h.Commit) || h.WALOffset != 32 || h.WALSalt1 == files[1].header.WALSalt1 {
		t.Errorf("txid 3 is no full image of a new WAL: %d of %d pages, offset %d", len(files[2].pages), h.Commit, h.WALOffset)
	}
	checkFiles(t, c)
}

func TestCaptureBesideAWriter(t *testing.T) {
	f := newFleet(t, Config{Layout: V06, TruncatePages: 200})
	c := activate(t, newNode(t, f, "node-a"), f.CellID("Shelf", "a"))
	w := NewWorkload(WorkloadConfig{Seed: 5})
	done, captured := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		// However seldom this goroutine or the other gets its turn, there are
		// captures between the first write and the last.
		for range 15 {
			select {
			case <-captured:
			case <-t.Context().Done():
				done <- t.Context().Err()
				return
			}
			if err := w.Run(t.Context(), c.DB(), 10); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for writing := true; writing; {
		select {
		case err := <-done:
			must(t, err)
			writing = false
		default:
		}
		capture(t, c)
		select {
		case captured <- struct{}{}:
		default:
		}
		must(t, c.UploadMerged(t.Context()))
	}
	checkFiles(t, c)
	checkBucket(t, f, c.Scope(), dump(t, c))
	if c.TXID() < 5 {
		t.Errorf("only %d captures beside %d transactions", c.TXID(), w.Transactions())
	}
}
