package ltxfile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
)

// mutants are small files of every kind for the tests that damage them.
func mutants(t *testing.T) map[string][]byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, 10))
	files := map[string][]byte{}
	for name, form := range forms() {
		img := randomImage(rng, 512, 6, true)
		files[name+" full"], _ = write(t, snapshot(512, 6), form, rolling(img), img)
		files[name+" increment"], _ = write(t, increment(512, 600), form, 0, randomImage(rng, 512, 5, false))
	}
	files["marker"], _ = write(t, increment(4096, 70000), Frame, 0, image{})
	return files
}

func TestEveryTruncationIsCorrupt(t *testing.T) {
	for name, file := range mutants(t) {
		for n := range len(file) {
			if _, _, err := read(file[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d of %d bytes: %v", name, n, len(file), err)
			}
			// The same with the size that a listing told.
			if _, _, err := readFrom(bytes.NewReader(file[:n]), int64(len(file))); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s that ends at %d of %d bytes: %v", name, n, len(file), err)
			}
		}
		longer := append(slices.Clone(file), 0)
		if _, _, err := read(longer); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with a byte added: %v", name, err)
		}
		if _, _, err := readFrom(bytes.NewReader(longer), int64(len(file))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s longer than its size: %v", name, err)
		}
	}
}

// TestEveryFlipIsCorrupt changes every byte. LZ4 has several spellings of one
// page, so a change inside compressed data may leave the page as it was: then
// nothing else may have changed either.
func TestEveryFlipIsCorrupt(t *testing.T) {
	for name, file := range mutants(t) {
		wantInfo, wantImage, err := read(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		harmless := 0
		for i := range file {
			for _, flip := range []byte{0x01, 0x80, 0xFF, 0x10} {
				bad := slices.Clone(file)
				bad[i] ^= flip
				info, img, err := read(bad)
				if errors.Is(err, ErrCorrupt) {
					continue
				}
				if err != nil || !cmp.Equal(info, wantInfo) || !cmp.Equal(img, wantImage) {
					t.Fatalf("%s, byte %d xor %#x: read as something else, %v", name, i, flip, err)
				}
				harmless++
			}
		}
		if harmless*20 > len(file) {
			t.Errorf("%s: %d flips of %d bytes go unnoticed", name, harmless, len(file))
		}
	}
}

func TestInconsistentFilesAreCorrupt(t *testing.T) {
	page := bytes.Repeat([]byte{1}, 512)
	pages := func(numbers ...uint32) (p []storedPage) {
		for _, n := range numbers {
			p = append(p, blockPage(t, n, page))
		}
		return p
	}
	resized := func(size uint32) []storedPage {
		p := pages(1)
		copy(p[0].payload, []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
		return p
	}
	head := increment(512, 9).append(nil)
	big := increment(65536, 16400).append(nil)
	short := framePage(t, 1, page[:511])
	described := func(at int, value byte) []storedPage { // a frame with one byte of its descriptor changed and summed again
		p := framePage(t, 1, page, lz4.SizeOption(512))
		p.payload[at] = value
		p.payload[14] = byte(xxh32(p.payload[4:14]) >> 8)
		return []storedPage{p}
	}
	twice := framePage(t, 1, page)
	twice.payload = append(twice.payload, framePage(t, 1, page).payload...)
	full := snapshot(512, 2)
	for name, p := range map[string]parts{
		"descending":     {header: head, pages: pages(3, 2)},
		"repeated":       {header: head, pages: pages(3, 3)},
		"beyond commit":  {header: head, pages: pages(10)},
		"page zero":      {header: head, pages: pages(0)},
		"lock page":      {header: big, pages: []storedPage{blockPage(t, 16385, make([]byte, 65536))}},
		"unknown flags":  {header: head, pages: []storedPage{{pgno: 1, flags: 2}}},
		"huge block":     {header: head, pages: resized(0x7fffffff)},
		"large block":    {header: head, pages: resized(600)},
		"empty block":    {header: head, pages: resized(0)},
		"short block":    {header: head, pages: []storedPage{blockPage(t, 1, page[:511])}},
		"long block":     {header: head, pages: []storedPage{blockPage(t, 1, append(page, 1))}},
		"short frame":    {header: head, pages: []storedPage{short}},
		"long frame":     {header: head, pages: []storedPage{framePage(t, 1, append(page, 1))}},
		"two frames":     {header: head, pages: []storedPage{twice}},
		"frame magic":    {header: head, pages: described(0, 5)},
		"frame version":  {header: head, pages: described(4, 0xAC)},
		"frame reserved": {header: head, pages: described(4, 0x6E)},
		"dictionary":     {header: head, pages: described(4, 0x6D)},
		"frame block":    {header: head, pages: described(5, 0x30)},
		"frame size":     {header: head, pages: described(6, 1)},
		"no index":       {header: head, pages: pages(1), index: []byte{0}},
		"index number":   {header: head, pages: pages(1), index: []byte{2, 100, 21, 0}},
		"index offset":   {header: head, pages: pages(1), index: []byte{1, 101, 21, 0}},
		"index too long": {header: head, index: []byte{1, 100, 21, 0}},
		"index number too large": {header: head, pages: pages(1),
			index: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1, 0}},
		"tail":                {header: head, pages: pages(1), tail: []byte{0}},
		"no post-apply":       {header: full.append(nil), pages: pages(1, 2)},
		"wrong post-apply":    {header: full.append(nil), pages: pages(1, 2), postApply: ChecksumFlag | 5},
		"incomplete snapshot": {header: full.append(nil), pages: pages(1), postApply: PageChecksum(1, page) ^ PageChecksum(2, page) | ChecksumFlag},
	} {
		if _, _, err := read(p.bytes()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, good := range [][]storedPage{pages(1, 2, 9), described(6, 0)} {
		if _, _, err := read(parts{header: head, pages: good}.bytes()); err != nil {
			t.Errorf("a file that the others are spoiled from: %v", err)
		}
	}
}
