package diffpage

import (
	"encoding/binary"
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
	const size = 512
	lock := shadow.LockPage(size)
	src := newSource(t, "PRAGMA page_size=512")
	src.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, b)", "CREATE TABLE w(k TEXT PRIMARY KEY, b) WITHOUT ROWID", insert("t", 20, "i, 'row '||i"), insert("w", 20, "'k'||i, i"))
	small, n := src.unit()
	image := append([]byte{}, src.last...)
	binary.BigEndian.PutUint32(image[28:], lock-3)
	copy(image[92:], image[24:28]) // the page count is believed where these agree
	src.reopenSparse(image, int64(lock-3)*size)
	f := newFollower(t, src)
	if err := f.sh.Resize(size, lock-3); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		page := image[i*size : (i+1)*size]
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
	for _, unit := range [][]string{
		{insert("t", 300, "i+100, 'row '||i||hex(zeroblob(i%9*40))")},
		{"CREATE TABLE late(a)", insert("late", 40, "zeroblob(i*30)"), insert("w", 200, "'l'||i, hex(zeroblob(i))")},
		{"UPDATE t SET b=b||'x' WHERE id%3=0", "DELETE FROM w WHERE k<'k5'", "UPDATE late SET a=zeroblob(length(a)) WHERE rowid%7=0"},
		{"DELETE FROM late", "DELETE FROM t WHERE id>50"},
		{insert("t", 400, "i+1000, 'again '||i||hex(zeroblob(i%7*50))"), "DROP TABLE late"},
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
		if changes == 0 || t.Failed() {
			t.Fatalf("%d changes after %q", changes, unit)
		}
	}
	if f.sh.Commit() < lock+50 || f.base.owners.of(lock) != 0 {
		t.Errorf("%d pages, the lock page is %d", f.sh.Commit(), lock)
	}
}
