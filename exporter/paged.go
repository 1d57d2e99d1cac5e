package exporter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"celldexport/internal/celld"
	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

// origin is where the numbers of an epoch begin, as found out. An epoch whose
// first local file is not its first transaction is either paged (it goes on
// from the numbers of an epoch before, from a marker) or has lost the files
// below.
type origin struct {
	epoch uint64
	// after is the txid before the first one, 0 unless the epoch is paged.
	after uint64
	// marked says that the first file was seen to be a marker.
	marked bool
	// waited counts the rounds in which the bucket was listed again for
	// epochs that a paged one would skip.
	waited int
}

// origins finds evidence for what the names of files do not tell.
type origins struct{ *kit }

// settle finds out where an epoch begins whose first local file is above txid
// 1: that the file is a marker shows it to be paged, and costs a local reading
// of a few bytes. Without that the bucket says, by its lowest object, where the
// epoch begins. When the view was about another beginning, the next round's is
// the right one.
func (o origins) settle(ctx context.Context, s *stream, v view) error {
	if s.origin.epoch == v.disk.Epoch || len(v.disk.Files) == 0 || v.disk.Files[0].TXID == 1 {
		return nil
	}
	at := origin{epoch: v.disk.Epoch, after: v.target.After, marked: o.localMarker(ctx, v)}
	if !at.marked {
		var err error
		if at, err = o.listed(ctx, s, v); err != nil {
			return err
		}
	}
	s.origin = at
	if at.after != v.target.After {
		return waiting(StatePending, "the node's files of e%d of %s begin at txid %d and the epoch at %d: the bucket's objects are read for what is missing", v.disk.Epoch, s.doc.Scope, v.disk.Files[0].TXID, at.after+1)
	}
	return nil
}

// localMarker reports whether the first local file is a marker. One that
// cannot be read shows nothing.
func (o origins) localMarker(ctx context.Context, v view) bool {
	r, err := openNode(ctx, o.tail, v.disk.Files[0])
	if err != nil {
		return false
	}
	defer r.Close()
	return isMarker(r, r.size, v.disk.Files[0].TXID)
}

// maxMarker is more bytes than a file without pages has.
const maxMarker = 1 << 10

// isMarker reports whether a file is whole, of this transaction alone, and
// without pages. Nothing that was captured is: a capture brings pages.
func isMarker(r io.Reader, size int64, txid uint64) bool {
	if size > maxMarker {
		return false
	}
	info, err := ltxfile.Decode(r, size, func(uint32, []byte) error { return nil })
	return err == nil && info.Pages == 0 && info.MinTXID == txid && info.MaxTXID == txid
}

// listed tells from the bucket where an epoch begins.
func (o origins) listed(ctx context.Context, s *stream, v view) (origin, error) {
	files, err := chain.ListEpoch(ctx, o.fleet, s.doc.Scope, v.disk.Epoch)
	if err != nil {
		return origin{}, err
	}
	var low chain.File
	for i, f := range files {
		if i == 0 || f.Min < low.Min || f.Min == low.Min && f.Max < low.Max {
			low = f
		}
	}
	if first := v.disk.Files[0].TXID; len(files) == 0 || low.Min > first {
		return origin{}, waiting(StatePending, "the bucket's listing of e%d of %s does not show what covers txid %d: it lags", v.disk.Epoch, s.doc.Scope, first)
	}
	at := origin{epoch: v.disk.Epoch, after: low.Min - 1}
	if at.after == 0 {
		return at, nil
	}
	name, err := o.exists(ctx, s, v.disk.Epoch, 1)
	if err != nil || name != "" {
		return origin{epoch: v.disk.Epoch}, err
	}
	if low.Min == low.Max && low.Object.Size <= maxMarker {
		at.marked, err = o.objectMarker(ctx, low)
	}
	return at, err
}

func (o origins) objectMarker(ctx context.Context, f chain.File) (bool, error) {
	r, err := chain.Open(ctx, o.fleet, f)
	if err != nil {
		return false, err
	}
	defer r.Close()
	return isMarker(r, f.Object.Size, f.Min), nil
}

// lateRounds is how many rounds a paged epoch waits for listings to show the
// objects of epochs that it would skip.
const lateRounds = 3

// maxProbed is how many skipped epochs are asked about by name.
const maxProbed = 8

// skips holds a paged epoch back that would be taken to continue `low` at txid
// `cut` over epochs in between of which the bucket lists nothing that ends
// there. Paged, it names what it is built on by that number alone; if one of
// them ends there too and a listing lags, rows of it would be missing and
// nothing would show it. So the bucket is listed again for some rounds, and
// asked for the objects by the names that an upload would have given them,
// which no listing is needed for. An image of its own has no need of this: its
// diff shows all that lies between.
func (o origins) skips(ctx context.Context, s *stream, low, high, cut uint64) error {
	if high-low <= 1 {
		return nil
	}
	for epoch := max(low+1, high-min(high, maxProbed)); epoch < high; epoch++ {
		name, err := o.exists(ctx, s, epoch, cut)
		if err != nil {
			return err
		}
		if name != "" {
			return waiting(StatePending, "the bucket has %s and does not list it: e%d, which is built on it, waits", name, high)
		}
	}
	if s.origin.waited++; s.origin.waited <= lateRounds {
		return waiting(StatePending, "e%d of %s is paged from txid %d and the bucket lists nothing that ends there of the epochs after e%d: it is listed again, in case it lags", high, s.doc.Scope, cut+1, low)
	}
	return nil
}

// skipsBelow is skips for every step down the chain of epochs that a paged one
// is restored from.
func (o origins) skipsBelow(ctx context.Context, s *stream, epoch uint64, files []chain.File) error {
	var chained []chain.File
	for _, f := range files {
		if f.Epoch <= epoch {
			chained = append(chained, f)
		}
	}
	head, ok := chain.Derive(chained)
	if !ok {
		return nil // the plan of the restore says why
	}
	waited := s.origin.waited
	for i := 1; i < len(head.Spans); i++ {
		s.origin.waited = waited // the steps wait together
		if err := o.skips(ctx, s, head.Spans[i-1].Epoch, head.Spans[i].Epoch, head.Spans[i].Lo-1); err != nil {
			return err
		}
	}
	return nil
}

// exists looks for an object of an epoch that ends at a txid, under the names
// that an upload of this one file, of all files so far, a compaction of them
// and a snapshot have. It returns the key, "" when there is none.
func (o origins) exists(ctx context.Context, s *stream, epoch, txid uint64) (string, error) {
	keys := []string{
		celld.LTXKey(s.doc.Scope, epoch, 0, txid, txid),
		celld.LTXKey(s.doc.Scope, epoch, 0, 1, txid),
		celld.LTXKey(s.doc.Scope, epoch, 1, 1, txid),
		celld.LTXKey(s.doc.Scope, epoch, celld.SnapshotLevel, 1, txid),
	}
	for i, key := range keys {
		if i > 0 && key == keys[0] {
			continue // of txid 1 both names are one
		}
		r, _, err := o.fleet.Get(ctx, key, objstore.GetOptions{Offset: -ltxfile.TrailerSize})
		if errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look for an object that is not listed: %w", err)
		}
		return key, r.Close()
	}
	return "", nil
}
