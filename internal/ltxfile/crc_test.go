package ltxfile

import (
	"bytes"
	"hash/crc64"
	"math/rand/v2"
	"testing"

	"github.com/superfly/ltx"
)

func TestCRCEqualsStandardLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := crc64.MakeTable(crc64.ISO)
	for n := range 400 {
		b := make([]byte, n)
		fillRandom(rng, b)
		if got, want := newCRC.update(b).sum(), crc64.Checksum(b, table)|ChecksumFlag; got != want {
			t.Fatalf("%d bytes: got %x, want %x", n, got, want)
		}
		cut := rng.IntN(n + 1)
		if got, want := newCRC.update(b[:cut]).update(b[cut:]), newCRC.update(b); got != want {
			t.Fatalf("%d bytes cut at %d: got %x, want %x", n, cut, got, want)
		}
	}
}

func TestPageChecksumEqualsLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{512, 4096, 65536} {
		page := randomPage(rng, size)
		pgno := rng.Uint32()
		if got, want := PageChecksum(pgno, page), uint64(ltx.ChecksumPage(pgno, page)); got != want {
			t.Errorf("page of %d bytes: got %x, want %x", size, got, want)
		}
	}
}

func TestXXH32Vectors(t *testing.T) {
	// The values that the reference implementation gives.
	for in, want := range map[string]uint32{
		"":    0x02CC5D05,
		"a":   0x550D7456,
		"abc": 0x32D153FF,
		"Nobody inspects the spammish repetition": 0xE2293B2F,
	} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("xxh32(%q) = %#x, want %#x", in, got, want)
		}
	}
}

func BenchmarkCRC(b *testing.B) {
	page := bytes.Repeat([]byte("0123456789abcdef"), 256)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		c := newCRC
		for b.Loop() {
			c = c.update(page)
		}
	})
	b.Run("standard", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		table, c := crc64.MakeTable(crc64.ISO), uint64(0)
		for b.Loop() {
			c = crc64.Update(c, table, page)
		}
	})
}
