package exporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"celldexport/exporter/state"
)

// journal makes what is spooled durable and true in shadows and documents, in
// the one order that a restart can take up from.
type journal struct {
	*kit
	shadows *shadows
	batch   batch
	// failed is the first failure of our own state. Nothing is made durable
	// after it: a mark on the spool would pass over what failed.
	failed error
}

// fail keeps a failure of our own state and returns it; other errors pass.
func (jn *journal) fail(err error) error {
	var own *stateError
	if jn.failed == nil && errors.As(err, &own) {
		jn.failed = err
	}
	return err
}

// batch is what was spooled since the last checkpoint.
type batch struct {
	streams map[*stream]struct{}
	// last is the highest spool entry, staged the bytes of pages that are not
	// in a shadow file yet, written those that are and may not be on disk.
	last            uint64
	staged, written int64
	since           time.Time
	// obsolete are shadow files that no document names after the checkpoint.
	obsolete []string
}

const (
	// checkpointEvery and checkpointBytes bound what a restart takes up from
	// the spool.
	checkpointEvery = 2 * time.Second
	checkpointBytes = 64 << 20
)

// spooled notes an entry of a stream that the next commit makes durable.
func (jn *journal) spooled(s *stream, seq uint64, bytes int64) {
	jn.touch(s)
	jn.batch.last = max(jn.batch.last, seq)
	jn.batch.staged += bytes
}

// touch has the stream's document saved with the next checkpoint.
func (jn *journal) touch(s *stream) {
	if jn.batch.streams == nil {
		jn.batch.streams = make(map[*stream]struct{})
		jn.batch.since = jn.now()
	}
	jn.batch.streams[s] = struct{}{}
	s.doc.Used = jn.now().UnixMicro()
}

// commitIfLarge bounds the memory of staged pages and the open shadows.
func (jn *journal) commitIfLarge(ctx context.Context) error {
	if jn.batch.staged < jn.settings.Export.MaxTxBytes && len(jn.shadows.opened.excess()) == 0 {
		return nil
	}
	return jn.commit(ctx)
}

// commit makes the batch's entries durable, which shows them to the sinks,
// and writes their pages into the shadows. Shadows and documents follow at
// the next checkpoint: until then a restart takes them up from the spool.
func (jn *journal) commit(ctx context.Context) error {
	if jn.failed != nil {
		return jn.failed // the batch that failed is gone
	}
	b := &jn.batch
	if len(b.streams) == 0 {
		return nil
	}
	if err := jn.flush(ctx); err != nil {
		return jn.fail(err)
	}
	if jn.now().Sub(b.since) < checkpointEvery && b.written < checkpointBytes && len(jn.shadows.opened.excess()) == 0 {
		return nil
	}
	return jn.checkpoint(ctx)
}

// flush syncs the spool, then moves staged pages into the shadow files. Like
// every step on our own disk it is short and not given up when ctx ends: a
// step cut short would look like a failing disk.
func (jn *journal) flush(ctx context.Context) error {
	if jn.failed != nil {
		return jn.failed
	}
	b := &jn.batch
	if b.last > 0 {
		if err := jn.spool.Sync(context.WithoutCancel(ctx)); err != nil {
			return stateFailed(fmt.Errorf("sync the spool: %w", err))
		}
	}
	if err := jn.at(StepSpooled); err != nil {
		return err
	}
	for s := range b.streams {
		if s.shadow == nil {
			continue
		}
		if err := errors.Join(jn.at(StepPages), s.shadow.Flush()); err != nil {
			return stateFailed(fmt.Errorf("write the shadow of %s: %w", s.doc.Scope, err))
		}
	}
	b.written += b.staged
	b.staged = 0
	return nil
}

// checkpoint brings everything after the spool up to it, in the one order
// that a restart can take up from: pages in the shadows, documents, and the
// mark that says so. Any failure is of our own state.
func (jn *journal) checkpoint(ctx context.Context) error {
	if len(jn.batch.streams) == 0 {
		return nil
	}
	if err := jn.flush(ctx); err != nil {
		return jn.fail(err)
	}
	b := jn.batch
	jn.batch = batch{}
	err := jn.settle(ctx, &b)
	var wait *waitError
	if errors.As(err, &wait) {
		jn.batch = b // all of it can be done again, and must
	}
	return jn.fail(err)
}

// settle is the part of a checkpoint after the spool and the staged pages.
func (jn *journal) settle(ctx context.Context, b *batch) error {
	docs := make([]*state.Stream, 0, len(b.streams))
	for s := range b.streams {
		docs = append(docs, s.doc)
		if s.shadow == nil {
			continue
		}
		if err := errors.Join(jn.at(StepSynced), s.shadow.Sync()); err != nil {
			return stateFailed(fmt.Errorf("sync the shadow of %s: %w", s.doc.Scope, err))
		}
	}
	if err := jn.at(StepDocuments); err != nil {
		return err
	}
	if err := jn.dir.Save(context.WithoutCancel(ctx), docs...); err != nil {
		return stateFailed(err)
	}
	if err := jn.at(StepApplied); err != nil {
		return err
	}
	if b.last > 0 {
		if err := jn.spool.SetApplied(b.last); err != nil {
			return stateFailed(fmt.Errorf("mark spool entries as applied: %w", err))
		}
	}
	for _, name := range b.obsolete {
		if err := errors.Join(jn.at(StepObsolete), jn.shadows.removeShadow(name)); err != nil {
			return stateFailed(err)
		}
	}
	for _, s := range jn.shadows.opened.excess() {
		jn.shadows.dropBase(s)
	}
	return nil
}

// catchUp brings what is on disk of a stream up to the spool. It comes before
// every change of the document that a restart could not tell from the spool's
// entries: a document must not be ahead of entries that are not applied.
func (jn *journal) catchUp(ctx context.Context, s *stream) error {
	if _, behind := jn.batch.streams[s]; !behind {
		return nil
	}
	return jn.checkpoint(ctx)
}

// saveNow stores a stream's document at once. The stream has caught up before
// the document was changed.
func (jn *journal) saveNow(ctx context.Context, s *stream) error {
	if jn.failed != nil {
		return jn.failed
	}
	return jn.fail(stateFailed(jn.dir.Save(context.WithoutCancel(ctx), s.doc)))
}
