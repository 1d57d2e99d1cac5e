package exporter

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"celldexport/internal/celld"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
	"celldexport/sinks/delivery"
)

// retention deletes this node's export objects when they are older than
// settings say. An object that holds records of an epoch still open here stays
// whatever its age: the epoch's certificate counts from its beginning.
type retention struct {
	*kit
	engine *delivery.Engine
	store  objstore.Store
	// exports reports whether cells of a class are exported.
	exports func(class string) bool
	every   time.Duration
	// last is what was kept by the sweep before, nil before the first. It is
	// kept by the next one too: an eviction that is given up opens its epoch
	// again.
	last []bucket.Range
	seen bool
}

const (
	// sweepEvery is the time between two sweeps, sweepPause between two
	// deletions of one.
	sweepEvery = time.Hour
	sweepPause = 100 * time.Millisecond
)

// run sweeps until ctx ends. What goes wrong is logged and done again by the
// next sweep.
func (rt *retention) run(ctx context.Context) {
	if rt.settings.Export.Retention == 0 || !rt.settings.HasSink(config.SinkBucket) {
		return
	}
	timer := time.NewTicker(cmp.Or(rt.every, sweepEvery))
	defer timer.Stop()
	for {
		done, err := rt.sweep(ctx)
		rt.metrics.outgoing.expired.Add(float64(done.Deleted))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			rt.log.Warn("old export objects are left for the next sweep", "deleted", done.Deleted, "failed", done.Failed, "err", err)
		case done.Deleted > 0:
			rt.log.Info("old export objects are deleted", "deleted", done.Deleted, "kept", done.Kept)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// sweep deletes what was old enough and of no open epoch in the sweep before
// and in this one.
func (rt *retention) sweep(ctx context.Context) (bucket.Swept, error) {
	now, err := rt.open(ctx)
	if err != nil {
		return bucket.Swept{}, err
	}
	before, first := rt.last, !rt.seen
	rt.last, rt.seen = now, true
	if first {
		return bucket.Swept{}, nil
	}
	days := time.Duration(rt.settings.Export.Retention) * 24 * time.Hour
	s := bucket.Sweep{
		Node: rt.settings.Node, Before: rt.now().Add(-days), Pause: sweepPause,
		Keeps: bucket.Keep(slices.Concat(before, now)),
	}
	return s.Run(ctx, rt.store)
}

// open is where the records of the epochs lie that are open here. One whose
// beginning we do not know keeps everything before its end.
func (rt *retention) open(ctx context.Context) ([]bucket.Range, error) {
	var ranges []bucket.Range
	for r, err := range rt.dir.Residencies(ctx, "") {
		if err != nil {
			return nil, err
		}
		if scope, err := celld.ParseScope(r.Scope); err != nil || !rt.exports(scope.Class()) {
			continue
		}
		d, ok, err := rt.engine.Delivered(r.ID, r.Epoch, bucket.SinkName)
		switch {
		case err != nil:
			return nil, err
		case r.Uncertified:
			ranges = append(ranges, bucket.Range{Last: cmp.Or(d.Last, math.MaxInt64)})
		case ok && d.Last > 0:
			ranges = append(ranges, bucket.Range{First: d.First, Last: d.Last})
		}
	}
	return ranges, nil
}
