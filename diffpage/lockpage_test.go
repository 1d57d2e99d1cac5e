package diffpage

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"celldexport/diffpage/shadow"
)

// walUnit is what the committed frames of the log hold (SQLite file format
// 4.1), for a database too large to be compared page by page.
func (s *source) walUnit(t *testing.T, size int) (*shadow.Images, uint32) {
	t.Helper()
	log, err := os.ReadFile(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	images, commit := shadow.NewImages(uint32(size), 1<<30, t.TempDir()), uint32(0)
	salt := string(log[16:24])
	for at := 32; at+24+size <= len(log) && string(log[at+8:at+16]) == salt; at += 24 + size {
		if err := images.Add(binary.BigEndian.Uint32(log[at:]), log[at+24:at+24+size]); err != nil {
			t.Fatal(err)
		}
		if n := binary.BigEndian.Uint32(log[at+4:]); n > 0 {
			commit = n
		}
	}
	s.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return images, commit
}

// TestTablesPastLockPage follows tables whose pages lie around and behind byte
// 2^30, in a sparse file that SQLite goes on writing.
func TestTablesPastLockPage(t *testing.T) {
	for _, size := range []int{512, 4096, 65536} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { tablesPastLockPage(t, size) })
	}
}

// sparseFollower is a base and a source of one small database each, of two
// tables, whose files end shortly before the lock page.
func sparseFollower(t *testing.T, size int) *follower {
	t.Helper()
	end := shadow.LockPage(uint32(size)) - 3
	src := newSource(t, fmt.Sprintf("PRAGMA page_size=%d", size))
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k TEXT PRIMARY KEY, b) WITHOUT ROWID", insert("t", 20, "i, 'row '||i"), insert("w", 20, "'k'||i, i"))
	small, n := src.unit()
	image := append([]byte{}, src.last...)
	binary.BigEndian.PutUint32(image[28:], end)
	copy(image[92:], image[24:28]) // the page count is believed where these agree
	src.reopenSparse(image, int64(end)*int64(size))
	f := newFollower(t, src)
	if err := f.sh.Resize(uint32(size), end); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		page := image[int(i)*size : int(i+1)*size]
		if err := f.sh.WritePage(i+1, page); err != nil {
			t.Fatal(err)
		}
	}
	if err := small.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.base, err = NewBase(f.sh, WithShared(f.shared)); err != nil {
		t.Fatal(err)
	}
	f.dumps = src.dump(f.base.Schema())
	return f
}

func tablesPastLockPage(t *testing.T, size int) {
	f := sparseFollower(t, size)
	src, lock := f.src, shadow.LockPage(uint32(size))
	// Rows are longer on larger pages, or all of them would stay before the
	// lock page. What is a few overflow pages here is a few there.
	scale := max(1, size/2048)
	behind := make(map[role]int) // the lock page
	for _, unit := range [][]string{
		{insert("t", 300, fmt.Sprintf("i+100, 'row '||i||hex(zeroblob(i%%9*40*%d))", scale))},
		{"CREATE TABLE late(a)", insert("late", 40, fmt.Sprintf("zeroblob(i*120*%d)", scale)), insert("w", 200, fmt.Sprintf("'l'||i, hex(zeroblob(i*%d))", scale))},
		{"UPDATE t SET b=b||'x' WHERE id%3=0", "DELETE FROM w WHERE k<'k5'", "UPDATE late SET a=CAST(zeroblob(length(a)-1)||'x' AS BLOB) WHERE rowid%7=0"},
		{"DELETE FROM late", "DELETE FROM t WHERE id>50"},
		{insert("t", 400, fmt.Sprintf("i+1000, 'again '||i||hex(zeroblob(i%%7*50*%d))", scale)), "DROP TABLE late"},
	} {
		src.exec(unit...)
		images, commit := src.walUnit(t, size)
		if images.Has(lock) {
			t.Fatal("SQLite wrote the lock page, the case is not the one meant")
		}
		c, err := f.base.Diff(images, commit)
		if err != nil {
			t.Fatal(err)
		}
		after := src.dump(c.After())
		changes := 0
		for name := range after {
			changes += checkEvents(t, name, f.dumps[name], after[name], rows(t, c, name))
		}
		if err := c.Accept(); err != nil {
			t.Fatal(err)
		}
		f.dumps = after
		f.check()
		for pgno := lock + 1; pgno <= f.sh.Commit(); pgno++ {
			behind[f.base.owners.of(pgno).role()]++
		}
		if changes == 0 || f.base.owners.of(lock) != 0 || t.Failed() {
			t.Fatalf("%d changes after %q, the lock page has owner %x", changes, unit, f.base.owners.of(lock))
		}
	}
	if f.sh.Commit() < lock+50 || behind[roleTree] == 0 || behind[roleHead] == 0 || behind[roleRest] == 0 {
		t.Errorf("%d pages, the lock page is %d; behind it by role: %v", f.sh.Commit(), lock, behind)
	}
}
