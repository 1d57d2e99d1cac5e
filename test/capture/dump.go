package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/superfly/ltx"
)

// capturedFile is one verified LTX file.
type capturedFile struct {
	name   string
	header ltx.Header
	pages  []page
}

// page is one page of a file.
type page struct {
	number uint32
	data   []byte
}

// readFiles reads and verifies every captured file of an example, in order.
func readFiles(example string) ([]capturedFile, error) {
	pattern := filepath.Join(example, "watch", "*", "ltx", "e*", ".db.sqlite-litestream", "ltx", "0", "*.ltx")
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var files []capturedFile
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := decode(b)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		f.name = filepath.Base(path)
		files = append(files, f)
	}
	return files, nil
}

// decode reads one file with the public LTX library.
func decode(b []byte) (capturedFile, error) {
	dec := ltx.NewDecoder(bytes.NewReader(b))
	if err := dec.DecodeHeader(); err != nil {
		return capturedFile{}, err
	}
	f := capturedFile{header: dec.Header()}
	for {
		var h ltx.PageHeader
		data := make([]byte, f.header.PageSize)
		err := dec.DecodePage(&h, data)
		if err == io.EOF {
			return f, dec.Close()
		}
		if err != nil {
			return f, err
		}
		f.pages = append(f.pages, page{h.Pgno, data})
	}
}

// printExample prints one line per captured file.
func printExample(w io.Writer, example string) error {
	files, err := readFiles(example)
	if err != nil {
		return err
	}
	for _, f := range files {
		var numbers []uint32
		for _, p := range f.pages {
			numbers = append(numbers, p.number)
		}
		if _, err := fmt.Fprintf(w, "txid %d-%d  timestamp %d  commit %d  pages %v\n",
			uint64(f.header.MinTXID), uint64(f.header.MaxTXID), f.header.Timestamp, f.header.Commit, numbers); err != nil {
			return err
		}
	}
	return nil
}
