package chain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"celldexport/internal/celld"
)

// ErrUnreachable is wrapped by the error of a Plan whose position no sequence
// of files ends at.
var ErrUnreachable = errors.New("the bucket does not restore to this position")

// Plan finds the files that, applied in the returned order, restore exactly
// the position (epoch, txid): transaction txid of the chain of epochs that
// ends with epoch. For an epoch that continues an older one, that includes
// the older one's transactions, by their numbers. Of the files at hand it
// takes few and large ones. An error that wraps ErrUnreachable says that no
// sequence of files ends there.
func Plan(files []File, epoch, txid uint64) ([]File, error) {
	if txid == 0 {
		return nil, fmt.Errorf("plan restore of e%d:0: transactions count from 1: %w", epoch, ErrUnreachable)
	}
	links := chainFrom(files, epoch)
	if len(links) == 0 {
		return nil, fmt.Errorf("plan restore of e%d:%d: epoch %d has no objects: %w", epoch, txid, epoch, ErrUnreachable)
	}
	usable := slices.DeleteFunc(flatten(links), func(f File) bool { return f.Max > txid })
	slices.SortStableFunc(usable, func(a, b File) int { return cmp.Compare(a.Min, b.Min) })

	var plan []File
	var at uint64
	if f, ok := snapshot(usable); ok {
		plan, at = append(plan, f), f.Max
	}
	for at < txid {
		f, rest, ok := furthest(usable, at)
		if !ok {
			return nil, fmt.Errorf("plan restore of e%d:%d: nothing continues transaction %d: %w", epoch, txid, at, ErrUnreachable)
		}
		plan, at, usable = append(plan, f), f.Max, rest
	}
	return plan, nil
}

// snapshot is the highest full image written at a handoff.
func snapshot(files []File) (best File, ok bool) {
	for _, f := range files {
		if f.Level == celld.SnapshotLevel && f.Min == 1 && (!ok || f.Max > best.Max) {
			best, ok = f, true
		}
	}
	return best, ok
}

// furthest is the file that leads furthest on from a cut, of files sorted by
// their first transaction, and what may still be of use after it. Everything
// that starts early enough and is not taken ends no later than the one taken,
// so each file is looked at once.
func furthest(files []File, at uint64) (best File, rest []File, ok bool) {
	n := 0
	for ; n < len(files) && files[n].Min-1 <= at; n++ {
		f := files[n]
		if f.Max > at && (!ok || better(f, best)) {
			best, ok = f, true
		}
	}
	return best, files[n:], ok
}

// better reports whether a is preferred to b where both continue a cut: the
// longer, then the more compacted, then the older one.
func better(a, b File) bool {
	return cmp.Or(
		cmp.Compare(b.Max, a.Max),
		cmp.Compare(a.Min, b.Min),
		cmp.Compare(b.Level, a.Level),
		a.Object.Modified.Compare(b.Object.Modified),
	) < 0
}
