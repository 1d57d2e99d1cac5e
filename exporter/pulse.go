package exporter

import (
	"context"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"celldexport/diffpage/shadow"
	"celldexport/internal/objstore"
	"celldexport/sinks/delivery"
)

// pulse is when something last moved inside a round. A round may take long: a
// unit or a restore of many gigabytes does. As long as bytes of files and
// objects come in and go out, and one stream after the other is done, it is
// not stuck. Attempts that fail are no sign of life but for their end.
type pulse struct {
	now func() time.Time
	at  atomic.Int64
	// pages counts those that were read and written since the last beat.
	pages atomic.Uint32
}

// pagesPerBeat is how many reads or writes of our own disk are one beat: the
// clock is not read for every page.
const pagesPerBeat = 64

func (p *pulse) beat() { p.at.Store(p.now().UnixNano()) }

func (p *pulse) page() {
	if p.pages.Add(1)%pagesPerBeat == 0 {
		p.beat()
	}
}

// last is the time of the last beat, zero before the first.
func (p *pulse) last() time.Time {
	if at := p.at.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// store has every answer of a store and every part of an object count.
func (p *pulse) store(s objstore.Store) objstore.Store { return &pulseStore{s, p} }

// reader has every part that is read count.
func (p *pulse) reader(r io.Reader) io.Reader { return pulseReader{r, p} }

type pulseStore struct {
	objstore.Store
	pulse *pulse
}

func (s *pulseStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Object, error] {
	return func(yield func(objstore.Object, error) bool) {
		for obj, err := range s.Store.List(ctx, prefix, after) {
			if err == nil {
				s.pulse.page()
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (s *pulseStore) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := s.Store.Get(ctx, key, opts)
	if err != nil {
		return nil, obj, err
	}
	s.pulse.beat()
	return struct {
		io.Reader
		io.Closer
	}{s.pulse.reader(body), body}, obj, nil
}

func (s *pulseStore) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	obj, err := s.Store.Put(ctx, key, body, size, opts)
	if err == nil {
		s.pulse.beat()
	}
	return obj, err
}

type pulseReader struct {
	r     io.Reader
	pulse *pulse
}

func (r pulseReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if n > 0 {
		r.pulse.beat()
	}
	return n, err
}

// pulseFile has the pages of a shadow count.
type pulseFile struct {
	shadow.File
	pulse *pulse
}

func (f pulseFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.pulse.page()
	return n, err
}

func (f pulseFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	f.pulse.page()
	return n, err
}

// pulseFS has what is written to the spool count.
type pulseFS struct {
	delivery.FS
	pulse *pulse
}

func (f pulseFS) Create(name string) (delivery.File, error) {
	file, err := f.FS.Create(name)
	return pulseSpool{file, f.pulse}, err
}

func (f pulseFS) Open(name string) (delivery.File, error) {
	file, err := f.FS.Open(name)
	return pulseSpool{file, f.pulse}, err
}

type pulseSpool struct {
	delivery.File
	pulse *pulse
}

func (f pulseSpool) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	f.pulse.page()
	return n, err
}
