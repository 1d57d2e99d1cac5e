package exporter

import (
	"context"
	"errors"
	"slices"

	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
	"celldexport/ltxtail/proof"
)

// leap gets a stream over an object that is broken for good: when a later
// file of the epoch holds every page, the stream re-bases on that file alone.
// It reports whether there was one.
func (bs *bases) leap(ctx context.Context, s *stream, v view) (bool, error) {
	images, files, err := bs.imagesAbove(ctx, s, v)
	if err != nil || len(images) == 0 {
		return false, err
	}
	if err := bs.entries.room(); err != nil {
		return false, err
	}
	led, err := bs.ledgers.ledgerOf(ctx, s)
	if err != nil {
		return false, err
	}
	pin, ok := led.Epoch(v.disk.Epoch)
	if !ok {
		return false, nil
	}
	// A close that stands would let another exporter go on from before it.
	if err := bs.closes.reopen(ctx, s); err != nil {
		return false, err
	}
	for _, f := range images {
		err := bs.rebaseTo(ctx, s, v.disk.Epoch, led, &pin, shown{files: files, plan: []chain.File{f}, head: f.Max})
		if !errors.Is(err, ltxfile.ErrCorrupt) {
			return err == nil, err
		}
	}
	return false, nil
}

// leapTries is how many files are read in search of a full image.
const leapTries = 4

// imagesAbove lists, largest first, files that may hold the whole database
// above a broken object. Every object counts as coverage, broken or not, and
// own.json is read after the listing.
func (bs *bases) imagesAbove(ctx context.Context, s *stream, v view) (images, files []chain.File, err error) {
	if files, err = chain.List(ctx, bs.fleet, s.doc.Scope); err != nil {
		return nil, nil, err
	}
	own, verdict, err := bs.prover.ReadOwn(ctx, s.scope.Cell, v.disk.Epoch)
	if err != nil {
		return nil, nil, err
	}
	if !verdict.Proves() {
		return nil, nil, verdictError(s, v, proof.Result{Verdict: verdict, Own: own})
	}
	inEpoch := slices.DeleteFunc(slices.Clone(files), func(f chain.File) bool { return f.Epoch != v.disk.Epoch })
	cuts := chain.Extend(inEpoch, s.doc.Residency.Spooled)
	if len(cuts) == 0 {
		return nil, files, nil
	}
	for _, f := range inEpoch {
		_, broken := s.skip[proof.ObjectID{Key: f.Object.Key, ETag: f.Object.ETag}]
		if !broken && f.Level == 0 && f.Min == f.Max && f.Max > s.doc.Residency.Spooled+1 && f.Max <= cuts[len(cuts)-1] {
			images = append(images, f)
		}
	}
	// The largest are the likeliest to be whole.
	slices.SortFunc(images, func(a, b chain.File) int { return int(b.Object.Size - a.Object.Size) })
	return images[:min(len(images), leapTries)], files, nil
}
