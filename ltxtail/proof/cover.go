package proof

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"celldexport/internal/celld"
	"celldexport/internal/chain"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// cover returns the units that the bucket covers, contiguous from t.After.
// Single-transaction objects are probed by name first; a miss, a backlog or a
// vanished directory asks for one listing of the epoch at all levels.
func (p *Prover) cover(ctx context.Context, t Target) ([]Unit, error) {
	local := make(map[uint64]ltxtail.File, len(t.Local))
	for _, f := range t.Local {
		local[f.TXID] = f
	}
	var units []Unit
	pos := t.After
	if !t.Whole {
		var done bool
		var err error
		units, done, err = p.probe(ctx, t, local)
		if err != nil || done {
			return units, err
		}
		pos += uint64(len(units))
	}
	files, err := chain.ListRest(ctx, p.Store, t.Scope, t.Epoch, pos)
	if err != nil {
		return nil, err
	}
	listed, err := p.walk(ctx, t, pos, files, local)
	if err != nil {
		return nil, err
	}
	if len(listed) == 0 && t.Whole && pos > 0 {
		// The residency is over: an object that reaches further back than
		// any upload seen must not be missed now.
		if files, err = chain.ListEpoch(ctx, p.Store, t.Scope, t.Epoch); err != nil {
			return nil, err
		}
		if listed, err = p.walk(ctx, t, pos, files, local); err != nil {
			return nil, err
		}
	}
	return append(units, listed...), nil
}

// probe looks pending files up by the name of their object. done says that no
// listing is needed: everything pending is covered.
func (p *Prover) probe(ctx context.Context, t Target, local map[uint64]ltxtail.File) (units []Unit, done bool, err error) {
	pos := t.After
	for range maxProbes {
		f, ok := local[pos+1]
		if !ok {
			break
		}
		key := celld.LTXKey(t.Scope, t.Epoch, 0, f.TXID, f.TXID)
		sum, obj, err := p.objectChecksum(ctx, key, "")
		if errors.Is(err, objstore.ErrNotFound) {
			return units, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		file := chain.File{Scope: t.Scope, Epoch: t.Epoch, Min: f.TXID, Max: f.TXID, Object: obj}
		if skipped(t, file) {
			return units, false, nil
		}
		units = append(units, p.single(file, sum, &f))
		pos++
	}
	return units, len(units) == len(t.Local), nil
}

// walk chooses the units of a listing: the single-transaction object of the
// next txid, else the narrowest object that continues from here.
func (p *Prover) walk(ctx context.Context, t Target, pos uint64, files []chain.File, local map[uint64]ltxtail.File) ([]Unit, error) {
	singles := make(map[uint64]chain.File)
	var wide []chain.File
	for _, f := range files {
		switch {
		case f.Max <= pos || skipped(t, f):
		case f.Level == 0 && f.Min == f.Max:
			singles[f.Min] = f
		default:
			wide = append(wide, f)
		}
	}
	sums, err := p.trailers(ctx, pos, singles, local)
	if err != nil {
		return nil, err
	}
	var units []Unit
	for len(units) < maxUnits {
		if f, ok := singles[pos+1]; ok {
			var l *ltxtail.File
			if lf, ok := local[pos+1]; ok {
				l = &lf
			}
			units = append(units, p.single(f, sums[pos+1], l))
			pos++
			continue
		}
		best := -1
		for i, f := range wide {
			if f.Min <= pos+1 && f.Max > pos && (best < 0 || f.Max < wide[best].Max || f.Max == wide[best].Max && f.Level < wide[best].Level) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		f := wide[best]
		units = append(units, Unit{Min: f.Min, Max: f.Max, Object: f})
		pos = f.Max
	}
	return units, nil
}

// single makes the unit of a single-transaction object: the local file when
// both carry the same file checksum, else the object.
func (p *Prover) single(f chain.File, sum uint64, local *ltxtail.File) Unit {
	u := Unit{Min: f.Min, Max: f.Max, Object: f}
	if local == nil {
		return u
	}
	if own, err := p.localChecksum(*local); err == nil {
		if own == sum {
			u.Local, u.Checksum = local, sum
		} else {
			u.Differs = local
		}
	}
	// A local file that cannot be read, or is torn, is no evidence of
	// anything: the object stands alone.
	return u
}

// trailers fetches the file checksums of the objects that have a local twin.
func (p *Prover) trailers(ctx context.Context, pos uint64, singles map[uint64]chain.File, local map[uint64]ltxtail.File) (map[uint64]uint64, error) {
	sums := make(map[uint64]uint64)
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for txid := pos + 1; txid <= pos+maxUnits; txid++ {
		f, ok := singles[txid]
		if _, twin := local[txid]; !ok || !twin {
			continue
		}
		g.Go(func() error {
			sum, _, err := p.objectChecksum(ctx, f.Object.Key, f.Object.ETag)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			sums[txid] = sum
			return nil
		})
	}
	return sums, g.Wait()
}

// objectChecksum reads the last 16 bytes of an object: an LTX trailer.
func (p *Prover) objectChecksum(ctx context.Context, key, etag string) (uint64, objstore.Object, error) {
	r, obj, err := p.Store.Get(ctx, key, objstore.GetOptions{Offset: -ltxfile.TrailerSize, IfMatch: etag})
	if err != nil {
		return 0, obj, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, ltxfile.TrailerSize))
	if err != nil {
		return 0, obj, err
	}
	sum, err := ltxfile.TrailerChecksum(b)
	if err != nil {
		// Too short for a trailer: no local file can be its twin.
		return 0, obj, nil
	}
	return sum, obj, nil
}

func (p *Prover) localChecksum(f ltxtail.File) (uint64, error) {
	r, err := p.Open(f)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return 0, err
	}
	b := make([]byte, ltxfile.TrailerSize)
	if _, err := r.ReadAt(b, max(0, info.Size()-ltxfile.TrailerSize)); err != nil {
		return 0, err
	}
	return ltxfile.TrailerChecksum(b)
}

func skipped(t Target, f chain.File) bool {
	_, bad := t.Skip[ObjectID{Key: f.Object.Key, ETag: f.Object.ETag}]
	return bad
}
