package exporter

import (
	"context"

	"celldexport/exporter/state"
)

// trimShadows removes shadows of departed cells, the longest unused first,
// until they fit cache_bytes. Their next wake restores from the bucket. It
// has work only after a residency was closed, and once that is on disk.
func (rd *rounds) trimShadows(ctx context.Context) error {
	if !rd.shadows.departed || len(rd.journal.batch.streams) > 0 {
		return nil
	}
	rd.shadows.departed = false
	used, err := rd.dir.Departed().Bytes(ctx)
	if err != nil || used <= rd.settings.Export.CacheBytes {
		return stateFailed(err)
	}
	for doc, err := range rd.dir.Departed().All(ctx) {
		if err != nil {
			return stateFailed(err)
		}
		if s := rd.streams[doc.Scope]; s != nil && s.turn != nil {
			rd.shadows.departed = true // it is looked at again
			continue
		}
		if err := rd.trimShadow(ctx, doc); err != nil {
			return err
		}
		if used -= doc.Shadow.Bytes(); used <= rd.settings.Export.CacheBytes {
			return nil
		}
	}
	return nil
}

// trimShadow removes the shadow of a cell that left, whether the stream is in
// memory or not: its class may not even be exported any more.
func (rd *rounds) trimShadow(ctx context.Context, doc *state.Stream) error {
	file := doc.Shadow.File
	trimmed := *doc
	if s := rd.streams[doc.Scope]; s != nil {
		rd.shadows.dropBase(s)
		s.doc.Shadow.File = ""
		trimmed = *s.doc
	}
	trimmed.Shadow.File = ""
	if err := rd.dir.Save(ctx, &trimmed); err != nil {
		return stateFailed(err)
	}
	return stateFailed(rd.shadows.removeShadow(file))
}
