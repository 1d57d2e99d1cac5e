package celldsim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc64"
	"io"
	"maps"
	"slices"

	"celldexport/internal/ltxfile"
)

// merger folds consecutive LTX files into one: the newest image of every
// page, without the pages above the last commit.
type merger struct {
	header ltxfile.Header
	files  int
	pages  map[uint32][]byte
}

func newMerger() *merger {
	return &merger{pages: map[uint32][]byte{}}
}

// errOrder is returned when the files of a merge do not follow each other.
var errOrder = errors.New("files do not follow each other")

// add takes the next file.
func (m *merger) add(b []byte) error {
	got := map[uint32][]byte{}
	info, err := ltxfile.Decode(bytes.NewReader(b), int64(len(b)), func(pgno uint32, data []byte) error {
		got[pgno] = bytes.Clone(data)
		return nil
	})
	if err != nil {
		return err
	}
	if m.files > 0 && (info.MinTXID != m.header.MaxTXID+1 || info.PageSize != m.header.PageSize) {
		return errOrder
	}
	first := m.header.MinTXID
	if m.files == 0 {
		first = info.MinTXID
	}
	// A page above this commit is gone, also when a later file grows the
	// database again: that file brings the new page.
	maps.DeleteFunc(m.pages, func(pgno uint32, _ []byte) bool { return pgno > info.Commit })
	maps.Copy(m.pages, got)
	m.header = ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: info.PageSize, Commit: info.Commit,
		MinTXID: first, MaxTXID: info.MaxTXID, Timestamp: info.Timestamp,
	}
	m.files++
	return nil
}

// encode writes the merged file.
func (m *merger) encode(w io.Writer, form ltxfile.Form) error {
	return encode(w, m.header, form, slices.Sorted(maps.Keys(m.pages)), m.read)
}

func (m *merger) read(pgno uint32, page []byte) error {
	copy(page, m.pages[pgno])
	return nil
}

// encodeSnapshot writes the merged file, which must start at txid 1, as a
// handoff snapshot: LZ4 frames, and the checksum of the whole database after
// it.
func (m *merger) encodeSnapshot(w io.Writer) error {
	h := m.header
	h.Flags = 0
	out, err := ltxfile.NewWriter(w, h, ltxfile.Frame)
	if err != nil {
		return err
	}
	var sum uint64
	table := crc64.MakeTable(crc64.ISO)
	for _, pgno := range slices.Sorted(maps.Keys(m.pages)) {
		if err := out.WritePage(pgno, m.pages[pgno]); err != nil {
			return err
		}
		sum ^= pageChecksum(table, pgno, m.pages[pgno])
	}
	_, err = out.Close(ltxfile.ChecksumFlag | sum)
	return err
}

// pageChecksum is a page's share of the rolling database checksum: CRC-64/ISO
// over the page number and the page. The shares of all pages are combined by
// exclusive or.
func pageChecksum(table *crc64.Table, pgno uint32, page []byte) uint64 {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], pgno)
	return ltxfile.ChecksumFlag | crc64.Update(crc64.Update(0, table, number[:]), table, page)
}
