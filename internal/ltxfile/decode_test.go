package ltxfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
)

// increment is a header that fits a small file of the middle of a chain.
func increment(pageSize, commit uint32) Header {
	return Header{
		Flags: FlagNoChecksum, PageSize: pageSize, Commit: commit, MinTXID: 7, MaxTXID: 9,
		Timestamp: 1795000000000, WALOffset: 32, WALSize: 4120, WALSalt1: 1, WALSalt2: 0xffffffff,
	}
}

// snapshot is a header of a full image that tracks checksums.
func snapshot(pageSize, commit uint32) Header {
	return Header{PageSize: pageSize, Commit: commit, MinTXID: 1, MaxTXID: 9, Timestamp: 1}
}

func forms() map[string]Form { return map[string]Form{"frame": Frame, "block": Block} }

func TestBothLibrariesReadBothWriters(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for pageSize := uint32(MinPageSize); pageSize <= MaxPageSize; pageSize *= 2 {
		for _, h := range []Header{increment(pageSize, 9), snapshot(pageSize, 9)} {
			full := !h.NoChecksum()
			img := randomImage(rng, pageSize, h.Commit, full)
			post := uint64(0)
			if full {
				post = rolling(img)
			}
			want := Info{Header: h, Pages: len(img.Numbers), PostApply: post}
			for name, form := range forms() {
				t.Run(fmt.Sprintf("%d/%s/flags%d", pageSize, name, h.Flags), func(t *testing.T) {
					file, sum := write(t, h, form, post, img)
					want := want
					want.Checksum = sum
					checkRead(t, file, want, img)
					lh, lt, limg, err := oracle(file)
					if err != nil {
						t.Fatalf("the library refuses the file: %v", err)
					}
					if diff := cmp.Diff(img, limg); diff != "" || lh != ltxHeader(h) || uint64(lt.FileChecksum) != sum {
						t.Errorf("the library reads something else: %+v %x %s", lh, lt.FileChecksum, diff)
					}
				})
			}
			t.Run(fmt.Sprintf("%d/library/flags%d", pageSize, h.Flags), func(t *testing.T) {
				file := oracleWrite(t, h, post, img)
				want.Checksum = mustTrailer(t, file)
				checkRead(t, file, want, img)
			})
		}
	}
}

func checkRead(t *testing.T, file []byte, want Info, img image) {
	t.Helper()
	info, got, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(img, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if sum := mustTrailer(t, file); sum != want.Checksum {
		t.Errorf("trailer checksum %x, want %x", sum, want.Checksum)
	}
}

func mustTrailer(t testing.TB, file []byte) uint64 {
	t.Helper()
	sum, err := TrailerChecksum(file[len(file)-TrailerSize:])
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestFramesOfOtherWriters reads frames with every option that a writer of
// frames has, and both forms in one file.
func TestFramesOfOtherWriters(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const size = 65536
	options := [][]lz4.Option{
		{lz4.BlockSizeOption(lz4.Block64Kb)},
		{lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(false)},
		{lz4.BlockSizeOption(lz4.Block256Kb), lz4.BlockChecksumOption(true)},
		{lz4.BlockSizeOption(lz4.Block1Mb), lz4.SizeOption(size)},
		{lz4.CompressionLevelOption(lz4.Level9)},
	}
	img := image{Data: map[uint32]string{}}
	p := parts{header: increment(size, 20).append(nil)}
	add := func(page storedPage, data []byte) {
		img.Numbers = append(img.Numbers, page.pgno)
		img.Data[page.pgno] = string(data)
		p.pages = append(p.pages, page)
	}
	for i, o := range options {
		data := randomPage(rng, size)
		add(framePage(t, uint32(3*i+1), data, o...), data)
		data = randomPage(rng, size)
		add(blockPage(t, uint32(3*i+2), data), data)
	}
	data := bytes.Repeat([]byte{7}, size)
	add(storedPage{19, 0, linkedFrame(data), data}, data)

	_, got, err := read(p.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(img, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}

// linkedFrame is a frame by hand of a page of one repeated byte, whose second
// block refers back into the first.
func linkedFrame(page []byte) []byte {
	f := []byte{0x04, 0x22, 0x4D, 0x18, frameVersion, frameBlock64K}
	f = append(f, byte(xxh32(f[4:6])>>8))
	half := len(page) / 2
	f = append(f, byte(half), byte(half>>8), byte(half>>16), 0x80)
	f = append(f, page[:half]...)
	// No literals, a match that begins 100 bytes back, then 5 literals.
	block := []byte{0x0F, 100, 0}
	left := half - 5 - 4 - 15
	for ; left >= 255; left -= 255 {
		block = append(block, 255)
	}
	block = append(block, byte(left), 0x50)
	block = append(block, page[:5]...)
	f = append(f, byte(len(block)), byte(len(block)>>8), 0, 0)
	f = append(f, block...)
	return append(f, 0, 0, 0, 0)
}

func TestHeaderRules(t *testing.T) {
	good := increment(4096, 5)
	for name, change := range map[string]func(*Header){
		"flags":            func(h *Header) { h.Flags = 4 },
		"page size 0":      func(h *Header) { h.PageSize = 0 },
		"page size 256":    func(h *Header) { h.PageSize = 256 },
		"page size 131072": func(h *Header) { h.PageSize = 131072 },
		"page size 1000":   func(h *Header) { h.PageSize = 1000 },
		"txid 0":           func(h *Header) { h.MinTXID = 0 },
		"txids backwards":  func(h *Header) { h.MaxTXID = 6 },
		"log offset":       func(h *Header) { h.WALOffset = -1 },
		"log size":         func(h *Header) { h.WALSize = -1 },
		"pre-apply":        func(h *Header) { h.PreApply = ChecksumFlag },
		"no pre-apply":     func(h *Header) { h.Flags = 0 },
		"pre-apply first":  func(h *Header) { h.Flags, h.MinTXID, h.PreApply = 0, 1, ChecksumFlag },
	} {
		h := good
		change(&h)
		if _, err := ParseHeader(h.append(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("read %s: %v", name, err)
		}
		if _, err := NewWriter(io.Discard, h, Frame); err == nil || errors.Is(err, ErrCorrupt) {
			t.Errorf("write %s: %v", name, err)
		}
	}
	if got, err := ParseHeader(good.append(nil)); err != nil || got != good {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := ParseHeader(good.append(nil)[:99]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("99 bytes: %v", err)
	}
	if _, err := ParseHeader(bytes.Repeat([]byte{'x'}, 100)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no magic: %v", err)
	}
}

// TestFilesWithoutPages reads the markers that open a paged epoch and the
// files that empty a database.
func TestFilesWithoutPages(t *testing.T) {
	marker := increment(4096, 70000)
	empty := Header{PageSize: 4096, MinTXID: 5, MaxTXID: 5, PreApply: ChecksumFlag | 1}
	for _, h := range []Header{marker, empty} {
		post := uint64(0)
		if !h.NoChecksum() {
			post = ChecksumFlag
		}
		file, sum := write(t, h, Block, post, image{})
		checkRead(t, file, Info{Header: h, PostApply: post, Checksum: sum}, image{Data: map[uint32]string{}})
		if _, _, _, err := oracle(file); err != nil {
			t.Errorf("the library refuses the file: %v", err)
		}
	}
	info, _, err := read(oracleWrite(t, empty, ChecksumFlag, image{}))
	if err != nil || !info.Full() {
		t.Errorf("file that empties a database: full %v, %v", info.Full(), err)
	}
}

func TestLockPageIsNotMissed(t *testing.T) {
	for _, c := range []struct {
		pageSize, lock uint32
	}{{512, 2097153}, {4096, 262145}, {65536, 16385}} {
		if got := LockPage(c.pageSize); got != c.lock {
			t.Errorf("lock page of %d: got %d, want %d", c.pageSize, got, c.lock)
		}
	}
	h := Header{PageSize: 65536, Commit: 16390}
	if !(Info{Header: h, Pages: 16389}).Full() || (Info{Header: h, Pages: 16388}).Full() {
		t.Error("full image beyond the lock page")
	}
	h.Commit = 16384
	if !(Info{Header: h, Pages: 16384}).Full() || (Info{Header: h, Pages: 16383}).Full() {
		t.Error("full image below the lock page")
	}
	rng := rand.New(rand.NewPCG(11, 12))
	img := image{Numbers: []uint32{1, 2, 16384, 16386}, Data: map[uint32]string{}}
	for _, n := range img.Numbers {
		img.Data[n] = string(randomPage(rng, 65536))
	}
	file, sum := write(t, increment(65536, 16390), Frame, 0, img)
	checkRead(t, file, Info{Header: increment(65536, 16390), Pages: 4, Checksum: sum}, img)
}

func TestMaxPagesBoundsFiles(t *testing.T) {
	img := image{Data: map[uint32]string{}}
	for n := uint32(1); n <= 500; n++ {
		img.Numbers = append(img.Numbers, n)
		img.Data[n] = string(make([]byte, 512)) // the smallest page there is
	}
	for name, form := range forms() {
		file, _ := write(t, increment(512, 500), form, 0, img)
		if limit := MaxPages(int64(len(file))); limit < 500 || limit > int64(len(file)) {
			t.Errorf("%s: at most %d pages in %d bytes, and there are 500", name, limit, len(file))
		}
	}
	if MaxPages(-1) != 0 {
		t.Error("pages in a file of no size")
	}
}

// TestReaders reads through inputs that return little, much and late.
func TestReaders(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	img := randomImage(rng, 65536, 40, true)
	file, _ := write(t, increment(65536, 40), Block, 0, img)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
	} {
		_, got, err := readFrom(wrap(bytes.NewReader(file)), int64(len(file)))
		if err != nil || !cmp.Equal(got, img) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type silentReader struct{}

func (silentReader) Read([]byte) (int, error) { return 0, nil }

func TestInputErrorsAreNotCorruption(t *testing.T) {
	file, _ := write(t, increment(512, 3), Frame, 0, randomImage(rand.New(rand.NewPCG(15, 16)), 512, 3, true))
	broken := errors.New("connection reset")
	for n := range len(file) + 1 {
		for _, cause := range []error{broken, io.ErrUnexpectedEOF} {
			r := io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(cause))
			if _, _, err := readFrom(r, int64(len(file))); !errors.Is(err, cause) || errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v after %d bytes: %v", cause, n, err)
			}
		}
		r := io.MultiReader(bytes.NewReader(file[:n]), silentReader{})
		if _, _, err := readFrom(r, int64(len(file))); !errors.Is(err, io.ErrNoProgress) {
			t.Fatalf("nothing after %d bytes: %v", n, err)
		}
	}
	_, err := Decode(bytes.NewReader(file), int64(len(file)), func(uint32, []byte) error { return broken })
	if err != broken { //nolint:errorlint // it is promised as it is
		t.Errorf("error of the visitor: %v", err)
	}
}

// TestMemoryIsBounded lets damaged sizes ask for memory.
func TestMemoryIsBounded(t *testing.T) {
	img := randomImage(rand.New(rand.NewPCG(17, 18)), 512, 4, true)
	file, _ := write(t, increment(512, 4), Block, 0, img)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range file {
		bad := slices.Clone(file)
		bad[i] = 0x7f
		_, err := Decode(bytes.NewReader(bad), 1<<40, func(uint32, []byte) error { return nil })
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of a file that is shorter than its size: %v", i, err)
		}
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / uint64(len(file)); per > 512<<10 {
		t.Errorf("%d bytes allocated for a damaged file of %d", per, len(file))
	}
}

// TestPagesCostNoAllocation compares a file with one of 990 pages more. What a
// file costs may differ by a few: the collector empties the pool of buffers
// when it likes, and the race detector has it forget some.
func TestPagesCostNoAllocation(t *testing.T) {
	const aFile = 10
	rng := rand.New(rand.NewPCG(19, 20))
	for name, form := range forms() {
		allocs := func(pages uint32) float64 {
			file, _ := write(t, increment(4096, pages), form, 0, randomImage(rng, 4096, pages, true))
			r := bytes.NewReader(file)
			return testing.AllocsPerRun(5, func() {
				r.Reset(file)
				if _, err := Decode(r, int64(len(file)), func(uint32, []byte) error { return nil }); err != nil {
					t.Fatal(err)
				}
			})
		}
		if few, many := allocs(10), allocs(1000); many > few+aFile {
			t.Errorf("%s: %v allocations for 10 pages, %v for 1000", name, few, many)
		}
	}
}

// TestGoldenFiles reads files that another implementation captured.
func TestGoldenFiles(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "golden-ltx")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the captured files beside the checkout (../shared/fixtures/golden-ltx) are absent")
	}
	for txid := uint64(1); txid <= 6; txid++ {
		file, err := os.ReadFile(filepath.Join(dir, FileName(txid, txid)))
		if err != nil {
			t.Fatal(err)
		}
		info, img, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.MinTXID != txid || info.MaxTXID != txid || info.PageSize != 4096 || info.Commit != 5 || !info.NoChecksum() || !info.Full() {
			t.Errorf("txid %d: %+v", txid, info)
		}
		_, trailer, want, err := oracle(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, img); diff != "" || info.Checksum != uint64(trailer.FileChecksum) {
			t.Errorf("txid %d differs from the library: %s", txid, diff)
		}
		// Written again it is the same content, if not the same bytes: the
		// checksum covers the index, and so how well pages were compressed.
		again, sum := write(t, info.Header, Frame, info.PostApply, img)
		info.Checksum = sum
		checkRead(t, again, info, img)
	}
}

// TestDecodeInto gives memory for some pages, of the wrong length for others:
// all are read, and those with memory are in it.
func TestDecodeInto(t *testing.T) {
	for name, form := range forms() {
		img := randomImage(rand.New(rand.NewPCG(5, 5)), 1024, 30, true)
		file, _ := write(t, snapshot(1024, 30), form, rolling(img), img)
		asked, placed := 0, 0
		var given []byte
		got := make(map[uint32]string)
		_, err := DecodeInto(bytes.NewReader(file), int64(len(file)), func() []byte {
			asked++
			given = [][]byte{nil, make([]byte, 1024), make([]byte, 512)}[asked%3]
			return given
		}, func(pgno uint32, data []byte) error {
			if len(given) == len(data) {
				if placed++; &given[0] != &data[0] {
					t.Errorf("%s: page %d is not in the memory for it", name, pgno)
				}
			}
			got[pgno] = string(data)
			return nil
		})
		if err != nil || asked != 30 || placed != 10 || !maps.Equal(got, img.Data) {
			t.Errorf("%s: %d pages, %d of them placed, error %v", name, asked, placed, err)
		}
	}
}
