package ltxfile

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

func TestWriterRefusesMisuse(t *testing.T) {
	page := make([]byte, 512)
	w, err := NewWriter(io.Discard, increment(512, 5), Block)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WritePage(2, page); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"again":         w.WritePage(2, page),
		"before":        w.WritePage(1, page),
		"beyond commit": w.WritePage(6, page),
		"short":         w.WritePage(3, page[:511]),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := w.Close(ChecksumFlag); err == nil {
		t.Error("post-apply checksum that is not tracked: accepted")
	}
	if _, err := w.Close(0); err != nil {
		t.Errorf("close after refused calls: %v", err)
	}
	if _, err := w.Close(0); err == nil {
		t.Error("second close: accepted")
	}
	if err := w.WritePage(3, page); err == nil {
		t.Error("page after close: accepted")
	}
	if _, err := NewWriter(io.Discard, increment(512, 5), Form(2)); err == nil {
		t.Error("unknown form: accepted")
	}
	w, err = NewWriter(io.Discard, increment(65536, 20000), Frame)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WritePage(16385, make([]byte, 65536)); err == nil {
		t.Error("lock page: accepted")
	}
}

// limitedWriter takes n bytes and then fails or falls short.
type limitedWriter struct {
	n   int
	err error
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	n := min(l.n, len(b))
	l.n -= n
	if n < len(b) {
		return n, l.err
	}
	return n, nil
}

func TestWriterReportsEveryFailure(t *testing.T) {
	full := errors.New("disk full")
	img := randomImage(rand.New(rand.NewPCG(21, 22)), 512, 3, true)
	file, _ := write(t, increment(512, 3), Frame, 0, img)
	for _, c := range []struct{ gives, want error }{{full, full}, {nil, io.ErrShortWrite}} {
		for n := range len(file) {
			w, err := NewWriter(&limitedWriter{n, c.gives}, increment(512, 3), Frame)
			for _, pgno := range img.Numbers {
				if err == nil {
					err = w.WritePage(pgno, []byte(img.Data[pgno]))
				}
			}
			if err == nil {
				_, err = w.Close(0)
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("writer that takes %d bytes: %v", n, err)
			}
		}
	}
}

func TestWriterIsDeterministic(t *testing.T) {
	img := randomImage(rand.New(rand.NewPCG(23, 24)), 4096, 20, true)
	for name, form := range forms() {
		a, _ := write(t, increment(4096, 20), form, 0, img)
		b, _ := write(t, increment(4096, 20), form, 0, img)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: two writers write different bytes", name)
		}
	}
}

func TestFileNames(t *testing.T) {
	for _, c := range []struct {
		name     string
		min, max uint64
	}{
		{"0000000000000001-0000000000000001.ltx", 1, 1},
		{"00000000000000ab-ffffffffffffffff.ltx", 0xab, 1<<64 - 1},
	} {
		lo, hi, ok := ParseFileName(c.name)
		if !ok || lo != c.min || hi != c.max || FileName(lo, hi) != c.name {
			t.Errorf("%s: %d, %d, %v; back %s", c.name, lo, hi, ok, FileName(lo, hi))
		}
	}
	for _, name := range []string{
		"", ".ltx", "0000000000000001-0000000000000001", "0000000000000001-0000000000000001.ltx.tmp",
		"00000000000000AB-00000000000000AB.ltx", "0000000000000001_0000000000000001.ltx",
		"0000000000000000-0000000000000001.ltx", "0000000000000002-0000000000000001.ltx",
		"000000000000001-00000000000000001.ltx", "0000000000000001-0000000000000001.LTX",
		"0000000000000001-000000000000000g.ltx", " 000000000000001-0000000000000001.ltx",
	} {
		if _, _, ok := ParseFileName(name); ok {
			t.Errorf("%q: accepted", name)
		}
	}
	if _, err := TrailerChecksum(make([]byte, 16)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("trailer of zeros: %v", err)
	}
	if _, err := TrailerChecksum(make([]byte, 17)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("trailer of 17 bytes: %v", err)
	}
}
