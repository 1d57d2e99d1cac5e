package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"

	"celldexport/exporter/state"
)

// batch is what was spooled and staged since the last commit.
type batch struct {
	streams map[*stream]struct{}
	// last is the highest spool entry, bytes the size of the staged pages.
	last  uint64
	bytes int64
	// obsolete are shadow files that no document names after the commit.
	obsolete []string
}

// spooled notes an entry of a stream that the next commit makes durable.
func (e *Exporter) spooled(s *stream, seq uint64, bytes int64) {
	e.touch(s)
	e.batch.last = max(e.batch.last, seq)
	e.batch.bytes += bytes
}

// touch has the stream's document saved with the next commit.
func (e *Exporter) touch(s *stream) {
	if e.batch.streams == nil {
		e.batch.streams = make(map[*stream]struct{})
	}
	e.batch.streams[s] = struct{}{}
}

// commitIfLarge bounds the memory of staged pages and the open shadows.
func (e *Exporter) commitIfLarge(ctx context.Context) error {
	if e.batch.bytes < e.settings.Export.MaxTxBytes && len(e.opened.excess()) == 0 {
		return nil
	}
	return e.commit(ctx)
}

// commit makes the batch durable in the one order that a restart can take up
// from: the spool, the pages in the shadows, the documents, and the mark that
// says so. Any failure is of our own state: what is in the spool is applied
// again at the next start.
func (e *Exporter) commit(ctx context.Context) error {
	b := e.batch
	e.batch = batch{}
	if b.last > 0 {
		if err := e.spool.Sync(ctx); err != nil {
			return stateFailed(fmt.Errorf("sync the spool: %w", err))
		}
	}
	docs := make([]*state.Stream, 0, len(b.streams))
	for s := range b.streams {
		docs = append(docs, s.doc)
		if s.shadow == nil {
			continue
		}
		if err := errors.Join(s.shadow.Flush(), s.shadow.Sync()); err != nil {
			return stateFailed(fmt.Errorf("write the shadow of %s: %w", s.doc.Scope, err))
		}
	}
	if len(docs) > 0 {
		if err := e.dir.Save(ctx, e.now().UnixMilli(), docs...); err != nil {
			return stateFailed(err)
		}
	}
	if b.last > 0 {
		if err := e.spool.SetApplied(b.last); err != nil {
			return stateFailed(fmt.Errorf("mark spool entries as applied: %w", err))
		}
	}
	for _, name := range b.obsolete {
		if err := os.Remove(e.shadowPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return stateFailed(fmt.Errorf("remove shadow: %w", err))
		}
	}
	for _, s := range e.opened.excess() {
		e.dropBase(s)
	}
	return nil
}

// saveNow stores a stream's document at once. It names nothing that a commit
// has yet to make true.
func (e *Exporter) saveNow(ctx context.Context, s *stream) error {
	if _, staged := e.batch.streams[s]; staged {
		if err := e.commit(ctx); err != nil {
			return err
		}
	}
	return stateFailed(e.dir.Save(ctx, e.now().UnixMilli(), s.doc))
}
