// Package audit holds the operator's commands as libraries: each works on the
// fleet bucket and on what a sink stored, from any machine, and never writes
// to a cell.
package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"celldexport/envelope"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// ErrUsage is wrapped by errors in what was asked for: a filter that does not
// exist, options that exclude each other.
var ErrUsage = errors.New("wrong use")

// Decoder reads the records of one stored object, with a cell at least those
// of the cell and its facets. Each record has its own memory, and errors name
// the object.
type Decoder func(name string, r io.ReaderAt, size int64, cell string) iter.Seq2[envelope.Encoded, error]

// Parquet is the Decoder of what the bucket sink writes. With a cell it does
// not read what the object's statistics and bloom filters exclude.
func Parquet(name string, r io.ReaderAt, size int64, cell string) iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		reader, err := bucket.NewReader(name, r, size)
		if err != nil {
			yield(envelope.Encoded{}, err)
			return
		}
		records := reader.Records()
		if cell != "" {
			records = reader.ForCell(cell)
		}
		for record, err := range records {
			if !yield(record, err) {
				return
			}
		}
	}
}

// Inspection says which records to read.
type Inspection struct {
	// Node limits to what one node wrote, Hour ("YYYY/MM/DD" or
	// "YYYY/MM/DD/HH", in UTC) further to a day or an hour of it.
	Node, Hour string
	// After is the key that the listing starts behind.
	After string
	// Objects is the most objects that are read.
	Objects int
	// Files are Parquet files to read instead of the bucket.
	Files []string
	Filter
}

// Filter picks records. Empty fields pick all.
type Filter struct {
	// Cell is a cell, for it and its facets, or a facet's scope.
	Cell string
	// Kind and Origin are a record's kind and origin.
	Kind, Origin string
}

// Inspected is what an inspection read.
type Inspected struct {
	// Objects and Records count what was read and what passed the filter.
	// A fragment counts as a record.
	Objects, Records int
	// Last is the key of the last object read whole, "" when there was none.
	Last string
	// More is set when objects were left because of the limit.
	More bool
}

// Inspector reads records back from where the bucket sink stored them.
type Inspector struct {
	// Store is the export bucket; it may be nil when files are read.
	Store objstore.Store
	// Decode is Parquet but in tests.
	Decode Decoder
}

// Run reads the records that q asks for, in the order of keys and of each
// object, and hands those that pass the filter to visit with the key or path
// they came from. A record is valid until visit returns. Errors name the
// object; what was read before one is returned with it. visit sees none of an
// object that does not decode. With a cell only those parts of objects are
// read that may hold it, so a broken other part goes unnoticed.
func (i *Inspector) Run(ctx context.Context, q Inspection, visit func(object string, r *envelope.Encoded) error) (Inspected, error) {
	var done Inspected
	filter, err := q.compile()
	if err != nil {
		return done, err
	}
	for source, err := range i.sources(ctx, q, filter) {
		if err != nil {
			return done, err
		}
		if done.Objects == q.Objects && len(q.Files) == 0 {
			done.More = true
			break
		}
		records, err := i.object(ctx, source, filter)
		if err != nil {
			return done, fmt.Errorf("read records: %w", err)
		}
		for n := range records {
			if err := visit(source.name, &records[n]); err != nil {
				return done, err
			}
		}
		done.Objects++
		done.Records += len(records)
		done.Last = source.name
	}
	return done, nil
}

// source is one object or file; open gives its bytes and their number.
type source struct {
	name string
	open func(ctx context.Context) (io.ReaderAt, int64, error)
}

func (i *Inspector) sources(ctx context.Context, q Inspection, filter picker) iter.Seq2[source, error] {
	if len(q.Files) > 0 {
		return files(q.Files)
	}
	return i.listed(ctx, q, filter)
}

func files(paths []string) iter.Seq2[source, error] {
	return func(yield func(source, error) bool) {
		for _, path := range paths {
			open := func(context.Context) (io.ReaderAt, int64, error) { return openFile(path) }
			if !yield(source{path, open}, nil) {
				return
			}
		}
	}
}

// openFile leaves it to the caller to close what it returns, when it is a
// Closer.
func openFile(path string) (io.ReaderAt, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (i *Inspector) listed(ctx context.Context, q Inspection, filter picker) iter.Seq2[source, error] {
	prefix := bucket.Prefix
	if q.Node != "" {
		prefix += q.Node + "/"
	}
	if q.Hour != "" {
		prefix += q.Hour + "/"
	}
	return func(yield func(source, error) bool) {
		for object, err := range i.Store.List(ctx, prefix, q.After) {
			if err != nil {
				yield(source{}, fmt.Errorf("list the exported objects: %w", err))
				return
			}
			if !strings.HasSuffix(object.Key, ".parquet") {
				continue
			}
			open := func(ctx context.Context) (io.ReaderAt, int64, error) { return i.open(ctx, object.Key, filter) }
			if !yield(source{object.Key, open}, nil) {
				return
			}
		}
	}
}

// open reads a stored object: for one cell its end first, which tells whether
// the rest is wanted.
func (i *Inspector) open(ctx context.Context, key string, filter picker) (io.ReaderAt, int64, error) {
	if filter.scope.Cell != "" {
		r, err := bucket.OpenRemote(ctx, i.Store, key)
		if err != nil {
			return nil, 0, err
		}
		return r, r.Size(), nil
	}
	data, _, err := objstore.ReadAll(ctx, i.Store, key, bucket.MaxObject)
	return bytes.NewReader(data), int64(len(data)), err
}

// object decodes one object and keeps what passes the filter. Every body is
// decoded, so that what is printed can be read by the next tool.
func (i *Inspector) object(ctx context.Context, from source, filter picker) ([]envelope.Encoded, error) {
	at, size, err := from.open(ctx)
	if err != nil {
		return nil, err
	}
	if c, ok := at.(io.Closer); ok {
		// Nothing was written, so closing has nothing to say.
		defer func() { _ = c.Close() }()
	}
	var kept []envelope.Encoded
	n := 0
	for r, err := range i.Decode(from.name, at, size, filter.scope.Cell) {
		if err != nil {
			return nil, err
		}
		if _, err := r.Decode(); err != nil {
			return nil, fmt.Errorf("%s: record %d: %w", from.name, n, err)
		}
		n++
		if filter.picks(&r) {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// AppendLine appends a record as inspect prints it: its JSON, then the object
// that it came from.
func AppendLine(dst []byte, object string, r *envelope.Encoded) []byte {
	dst = r.AppendJSON(dst)
	dst = append(dst[:len(dst)-1], `,"object":`...)
	return append(envelope.AppendString(dst, object), '}')
}
