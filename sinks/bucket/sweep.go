package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"celldexport/internal/objstore"
)

// Range is a stretch of object names by their time in microseconds, both ends
// included.
type Range struct{ First, Last int64 }

// Kept is the stretches of names that a sweep leaves alone.
type Kept struct {
	merged []Range // in order, none touching the next
}

// Keep merges stretches.
func Keep(ranges []Range) Kept {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b Range) int {
		switch {
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
	var k Kept
	for _, r := range sorted {
		if n := len(k.merged); n > 0 && r.First <= k.merged[n-1].Last+1 {
			k.merged[n-1].Last = max(k.merged[n-1].Last, r.Last)
			continue
		}
		k.merged = append(k.merged, r)
	}
	return k
}

// Holds reports whether an object with this time in its name is kept.
func (k Kept) Holds(micros int64) bool {
	i, found := slices.BinarySearchFunc(k.merged, micros, func(r Range, at int64) int {
		switch {
		case r.First < at:
			return -1
		case r.First > at:
			return 1
		}
		return 0
	})
	return found || i > 0 && k.merged[i-1].Last >= micros
}

// Sweep says what a sweep may delete.
type Sweep struct {
	// Node is whose objects are deleted. Others, and keys that this sink does
	// not write, are left alone.
	Node string
	// Before is when the objects to delete were named at the latest.
	Before time.Time
	// Keeps are left alone whatever their age.
	Keeps Kept
	// Pause is waited after every deletion, so that a sweep with much to do
	// takes nothing away from the export.
	Pause time.Duration
}

// Swept is what a sweep did.
type Swept struct {
	// Deleted objects are gone; Kept are old enough and were left alone.
	Deleted, Kept int
	// Failed could not be deleted and are tried again by the next sweep.
	Failed int
}

// maxFailures ends a sweep that gets nowhere.
const maxFailures = 10

// Run deletes the node's old objects, one request each: the stores that speak
// S3 do not agree on how several are deleted at once. It goes on after an
// object that cannot be deleted; the error tells of the first.
func (s Sweep) Run(ctx context.Context, store objstore.Store) (Swept, error) {
	var done Swept
	var first error
	before := s.Before.UnixMicro()
	for obj, err := range store.List(ctx, Prefix+s.Node+"/", "") {
		if err != nil {
			return done, errors.Join(first, fmt.Errorf("list the objects of node %s: %w", s.Node, err))
		}
		name, ok := ParseName(obj.Key)
		if !ok {
			continue
		}
		if name.Micros >= before {
			break // names are in the order of time
		}
		if s.Keeps.Holds(name.Micros) {
			done.Kept++
			continue
		}
		if err := store.Delete(ctx, obj.Key); err != nil {
			done.Failed++
			if first == nil {
				first = fmt.Errorf("delete old object: %w", err)
			}
			if done.Failed >= maxFailures || ctx.Err() != nil || errors.Is(err, objstore.ErrDenied) {
				break
			}
		} else {
			done.Deleted++
		}
		if !s.wait(ctx) {
			break
		}
	}
	return done, first
}

// wait paces the sweep. It reports whether to go on.
func (s Sweep) wait(ctx context.Context) bool {
	if s.Pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(s.Pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
