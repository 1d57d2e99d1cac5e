package ltxfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/superfly/ltx"
)

// image is what a file says: its pages by number, in the order they came.
type image struct {
	Numbers []uint32
	Data    map[uint32]string
}

// read decodes a whole file.
func read(b []byte) (Info, image, error) { return readFrom(bytes.NewReader(b), int64(len(b))) }

func readFrom(r io.Reader, size int64) (Info, image, error) {
	img := image{Data: map[uint32]string{}}
	info, err := Decode(r, size, func(pgno uint32, data []byte) error {
		img.Numbers = append(img.Numbers, pgno)
		img.Data[pgno] = string(data)
		return nil
	})
	return info, img, err
}

// write encodes pages in ascending order of numbers.
func write(t testing.TB, h Header, form Form, postApply uint64, img image) ([]byte, uint64) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h, form)
	if err != nil {
		t.Fatal(err)
	}
	for _, pgno := range img.Numbers {
		if err := w.WritePage(pgno, []byte(img.Data[pgno])); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Close(postApply)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sum
}

// randomPage makes page content of different kinds: noise that LZ4 cannot
// shrink, zeros, and rows with free space as SQLite leaves it.
func randomPage(rng *rand.Rand, size int) []byte {
	b := make([]byte, size)
	switch rng.IntN(3) {
	case 0:
		fillRandom(rng, b)
	case 1:
		for at := 8; at < size*2/3; {
			at += copy(b[at:], fmt.Sprintf("row %d of customer %d: %x;", rng.IntN(1000), rng.IntN(50), rng.Uint32()))
		}
	}
	return b
}

func fillRandom(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

// randomImage is a set of pages of a database of commit pages.
func randomImage(rng *rand.Rand, pageSize, commit uint32, all bool) image {
	img := image{Data: map[uint32]string{}}
	for pgno := uint32(1); pgno <= commit; pgno++ {
		if pgno == LockPage(pageSize) || !all && rng.IntN(2) == 0 {
			continue
		}
		img.Numbers = append(img.Numbers, pgno)
		img.Data[pgno] = string(randomPage(rng, int(pageSize)))
	}
	return img
}

func rolling(img image) uint64 {
	var sum uint64
	for pgno, data := range img.Data {
		sum ^= PageChecksum(pgno, []byte(data))
	}
	return sum | ChecksumFlag
}

// parts is a file in pieces, so that a test can spoil one of them and still
// have a checksum that fits.
type parts struct {
	header []byte
	pages  []storedPage
	// index is the page index when it is not that of the pages; the length
	// behind it is added.
	index     []byte
	postApply uint64
	tail      []byte // behind the trailer
}

// storedPage is a page as stored and as it counts for the checksum.
type storedPage struct {
	pgno    uint32
	flags   uint16
	payload []byte // behind the page header
	plain   []byte // what the checksum covers behind the page header
}

func blockPage(t testing.TB, pgno uint32, data []byte) storedPage {
	t.Helper()
	var c lz4.Compressor
	buf := make([]byte, lz4.CompressBlockBound(len(data)))
	n, err := c.CompressBlock(data, buf)
	if err != nil || n == 0 {
		t.Fatalf("compress: %d, %v", n, err)
	}
	size := binary.BigEndian.AppendUint32(nil, uint32(n))
	return storedPage{pgno, pageFlagSized, append(bytes.Clone(size), buf[:n]...), append(size, data...)}
}

// framePage stores a page as a frame that an LZ4 library wrote.
func framePage(t testing.TB, pgno uint32, data []byte, options ...lz4.Option) storedPage {
	t.Helper()
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	if err := w.Apply(options...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return storedPage{pgno, 0, b.Bytes(), data}
}

func (p parts) bytes() []byte {
	file := bytes.Clone(p.header)
	sum := newCRC.update(file)
	var index []byte
	for _, page := range p.pages {
		head := binary.BigEndian.AppendUint32(nil, page.pgno)
		head = binary.BigEndian.AppendUint16(head, page.flags)
		index = binary.AppendUvarint(index, uint64(page.pgno))
		index = binary.AppendUvarint(index, uint64(len(file)))
		index = binary.AppendUvarint(index, uint64(len(head)+len(page.payload)))
		file = append(append(file, head...), page.payload...)
		sum = sum.update(head).update(page.plain)
	}
	index = append(index, 0)
	if p.index != nil {
		index = p.index
	}
	rest := append(make([]byte, pageHeaderSize), index...)
	rest = binary.BigEndian.AppendUint64(rest, uint64(len(index)))
	rest = binary.BigEndian.AppendUint64(rest, p.postApply)
	sum = sum.update(rest)
	file = append(file, rest...)
	file = binary.BigEndian.AppendUint64(file, sum.sum())
	return append(file, p.tail...)
}

// ltxHeader is h as the other library spells it.
func ltxHeader(h Header) ltx.Header {
	return ltx.Header{
		Version:          ltx.Version,
		Flags:            h.Flags,
		PageSize:         h.PageSize,
		Commit:           h.Commit,
		MinTXID:          ltx.TXID(h.MinTXID),
		MaxTXID:          ltx.TXID(h.MaxTXID),
		Timestamp:        h.Timestamp,
		PreApplyChecksum: ltx.Checksum(h.PreApply),
		WALOffset:        h.WALOffset,
		WALSize:          h.WALSize,
		WALSalt1:         h.WALSalt1,
		WALSalt2:         h.WALSalt2,
		NodeID:           h.NodeID,
	}
}

// oracle decodes a file with the other library.
func oracle(b []byte) (ltx.Header, ltx.Trailer, image, error) {
	img := image{Data: map[uint32]string{}}
	dec := ltx.NewDecoder(bytes.NewReader(b))
	if err := dec.DecodeHeader(); err != nil {
		return ltx.Header{}, ltx.Trailer{}, img, err
	}
	data := make([]byte, dec.Header().PageSize)
	for {
		var h ltx.PageHeader
		err := dec.DecodePage(&h, data)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return ltx.Header{}, ltx.Trailer{}, img, err
		}
		img.Numbers = append(img.Numbers, h.Pgno)
		img.Data[h.Pgno] = string(data)
	}
	err := dec.Close()
	return dec.Header(), dec.Trailer(), img, err
}

// oracleWrite encodes a file with the other library.
func oracleWrite(t testing.TB, h Header, postApply uint64, img image) []byte {
	t.Helper()
	var b bytes.Buffer
	enc, err := ltx.NewEncoder(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := enc.EncodeHeader(ltxHeader(h)); err != nil {
		t.Fatal(err)
	}
	for _, pgno := range img.Numbers {
		if err := enc.EncodePage(ltx.PageHeader{Pgno: pgno}, []byte(img.Data[pgno])); err != nil {
			t.Fatal(err)
		}
	}
	enc.SetPostApplyChecksum(ltx.Checksum(postApply))
	if err := enc.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
