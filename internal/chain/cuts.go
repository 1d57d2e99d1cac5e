package chain

import (
	"cmp"
	"slices"
)

// Extend tells which positions one epoch's files lead to from the cut `from`:
// the ascending transaction numbers above it at which a restore can stop. A
// file leads from a cut that it overlaps or continues to its own last
// transaction; files above a hole lead nowhere. All files must be of one
// epoch, or of one chain of epochs.
func Extend(files []File, from uint64) (cuts []uint64) {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Max, b.Max), cmp.Compare(a.Min, b.Min))
	})
	// Cuts are found in ascending order, so only the last one matters: if it
	// does not lead into a file, no smaller one does.
	at := from
	for _, f := range sorted {
		if f.Max > at && f.Min-1 <= at {
			at = f.Max
			cuts = append(cuts, at)
		}
	}
	return cuts
}

// Newest is the highest epoch that has a file; ok is false without files.
func Newest(files []File) (epoch uint64, ok bool) {
	for _, f := range files {
		epoch = max(epoch, f.Epoch)
	}
	return epoch, len(files) > 0
}

// Span is a range of transactions that one epoch contributes to a chain.
type Span struct {
	Epoch, Lo, Hi uint64
}

// Head is what a scope's objects restore to.
type Head struct {
	// Epoch and TXID are the position.
	Epoch, TXID uint64
	// Spans say which epoch each transaction from 1 to TXID belongs to, in
	// ascending order.
	Spans []Span
}

// Derive tells what a scope's files restore to. ok is false when they restore
// to nothing: there is no file, or no way from the start to any of them.
//
// An epoch that was opened without downloading the database numbers its
// transactions on from its predecessor, so its lowest number is above 1; then
// the next lower epoch that ends just before it belongs to the chain, and so
// on down to one that starts at 1.
func Derive(files []File) (Head, bool) {
	newest, ok := Newest(files)
	if !ok {
		return Head{}, false
	}
	links := chainFrom(files, newest)
	cuts := Extend(flatten(links), 0)
	if len(cuts) == 0 {
		return Head{}, false
	}
	return headOf(links, cuts[len(cuts)-1]), true
}

// link is one epoch's part of a chain.
type link struct {
	epoch uint64
	lo    uint64 // the lowest transaction
	files []File
}

// chainFrom collects the epochs that the given one builds on, in ascending
// order and itself the last; nil when it has no files. Epochs in between that
// do not end where the chain continues are left out: they are no part of the
// history, or were written to after they had been left.
func chainFrom(files []File, newest uint64) []link {
	byEpoch := make(map[uint64][]File)
	for _, f := range files {
		if f.Epoch <= newest {
			byEpoch[f.Epoch] = append(byEpoch[f.Epoch], f)
		}
	}
	if len(byEpoch[newest]) == 0 {
		return nil
	}
	var links []link
	for _, epoch := range slices.Backward(sortedKeys(byEpoch)) {
		part := byEpoch[epoch]
		if n := len(links); n > 0 {
			next := links[n-1].lo
			part = slices.DeleteFunc(part, func(f File) bool { return f.Max >= next })
			if highest(part) != next-1 {
				continue
			}
		}
		lo := lowest(part)
		links = append(links, link{epoch: epoch, lo: lo, files: part})
		if lo == 1 {
			break
		}
	}
	slices.Reverse(links)
	return links
}

// headOf describes a chain that ends at the cut txid.
func headOf(links []link, txid uint64) Head {
	h := Head{TXID: txid}
	for i, l := range links {
		if l.lo > txid {
			break
		}
		hi := txid
		if i+1 < len(links) {
			hi = min(hi, links[i+1].lo-1)
		}
		h.Epoch = l.epoch
		h.Spans = append(h.Spans, Span{Epoch: l.epoch, Lo: l.lo, Hi: hi})
	}
	return h
}

func flatten(links []link) []File {
	var files []File
	for _, l := range links {
		files = append(files, l.files...)
	}
	return files
}

func sortedKeys(m map[uint64][]File) []uint64 {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// highest is the last transaction of any file, 0 without files.
func highest(files []File) uint64 {
	var n uint64
	for _, f := range files {
		n = max(n, f.Max)
	}
	return n
}

// lowest is the first transaction of any file, 0 without files.
func lowest(files []File) uint64 {
	var n uint64
	for i, f := range files {
		if i == 0 || f.Min < n {
			n = f.Min
		}
	}
	return n
}
