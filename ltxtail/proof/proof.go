// Package proof decides which pending transactions are durable and still
// owned, by one rule and no other: the bucket was seen to cover the
// transaction's bytes, and an own.json read after that names this node and
// this epoch, or no node and this epoch. Whoever takes the cell over claims
// own.json first and lists the bucket afterwards, so it restores what was
// covered before our reading. No clock, lease or file time takes part.
package proof

import (
	"context"
	"errors"
	"fmt"

	"celldexport/internal/celld"
	"celldexport/internal/chain"
	"celldexport/internal/objstore"
	"celldexport/ltxtail"
)

// ErrControl is returned when the fleet keeps its ownership records somewhere
// else than in the bucket: nothing can be proven there.
var ErrControl = errors.New("ownership is not kept in the bucket")

// Verdict is what own.json said after the coverage was seen.
type Verdict uint8

// The verdicts.
const (
	// Unasked: nothing was covered, so own.json was not read.
	Unasked Verdict = iota
	// Owned: this node and this epoch. What is covered is proven.
	Owned
	// Released: no node and this epoch. What is covered is proven; the
	// residency is over.
	Released
	// Fenced: a higher epoch. What was not proven before never will be.
	Fenced
	// Foreign: this epoch with another node. Nothing is proven.
	Foreign
	// Behind: a lower epoch, as a stale read shows. Nothing is proven yet.
	Behind
	// Missing: no own.json. Nothing is proven.
	Missing
)

var verdictNames = [...]string{"unasked", "owned", "released", "fenced", "foreign", "behind", "missing"}

// String is the verdict's name as in state and logs.
func (v Verdict) String() string { return verdictNames[v] }

// Proves reports whether covered transactions may be exported.
func (v Verdict) Proves() bool { return v == Owned || v == Released }

// Unit is one LTX file to be consumed whole: the local file when the bucket's
// object of the same single txid has the same file checksum, otherwise the
// covering object itself.
type Unit struct {
	// Min and Max are the file's txids. Min may be at or below the last
	// exported txid: the images of a wider object are those at Max.
	Min, Max uint64
	// Local is the node's file, nil when the object must be read.
	Local *ltxtail.File
	// Object covers the unit.
	Object chain.File
	// Checksum is the file checksum that local file and object share; 0 when
	// the object is the unit.
	Checksum uint64
	// Differs is set when a local file of this txid exists and is not the
	// object's twin: equal pages mean that it was encoded again, different
	// pages mean two writers.
	Differs *ltxtail.File
}

// Target is a residency with something to prove.
type Target struct {
	// Scope is the bucket scope, Root the cell whose own.json fences it.
	Scope, Root string
	Epoch       uint64
	// After is the last txid already exported.
	After uint64
	// Local are the pending files above After, ascending.
	Local []ltxtail.File
	// Whole asks for a listing even when probes would do: at start, and when
	// the LTX directory vanished.
	Whole bool
	// Ask reads own.json also when nothing is covered: for something that
	// waits long already, since nothing else tells of a lost cell.
	Ask bool
	// Skip holds objects, by key and ETag, that turned out to be broken.
	Skip map[ObjectID]struct{}
}

// ObjectID names one version of an object.
type ObjectID struct{ Key, ETag string }

// Result is what was proven of a target.
type Result struct {
	Verdict Verdict
	Own     celld.Own
	// Units are contiguous from Target.After and proven when
	// Verdict.Proves().
	Units []Unit
}

// Prover reads the fleet bucket. It keeps no state between calls.
type Prover struct {
	// Store is the fleet bucket.
	Store objstore.Store
	// Node is this node's id in own.json.
	Node string
	// Open opens a local file.
	Open func(ltxtail.File) (ltxtail.ReadFile, error)
}

const (
	// maxProbes is how many transactions are looked up one by one before a
	// listing is cheaper.
	maxProbes = 10
	// maxUnits bounds what one call proves, so that a backlog of one cell
	// does not hold up the others.
	maxUnits = 256
	// parallel is how many trailers are fetched at once.
	parallel = 8
	// maxDocument bounds own.json and control.json.
	maxDocument = 64 << 10
)

// Prove looks for coverage and then reads own.json. With nothing covered and
// neither Whole nor Ask set it does not read own.json: the verdict is Unasked.
func (p *Prover) Prove(ctx context.Context, t Target) (Result, error) {
	units, err := p.cover(ctx, t)
	if err != nil {
		return Result{}, fmt.Errorf("find coverage of %s e%d: %w", t.Scope, t.Epoch, err)
	}
	if len(units) == 0 && !t.Whole && !t.Ask {
		return Result{}, nil
	}
	own, verdict, err := p.ReadOwn(ctx, t.Root, t.Epoch)
	if err != nil {
		return Result{}, err
	}
	return Result{Verdict: verdict, Own: own, Units: units}, nil
}

// ReadOwn reads own.json of a cell afresh and judges it for an epoch.
func (p *Prover) ReadOwn(ctx context.Context, root string, epoch uint64) (celld.Own, Verdict, error) {
	key := celld.OwnKey(root)
	data, _, err := objstore.ReadAll(ctx, p.Store, key, maxDocument)
	if errors.Is(err, objstore.ErrNotFound) {
		return celld.Own{}, Missing, nil
	}
	if err != nil {
		return celld.Own{}, Unasked, fmt.Errorf("read ownership record: %w", err)
	}
	own, err := celld.ParseOwn(data)
	if err != nil {
		return celld.Own{}, Unasked, fmt.Errorf("read ownership record %s: %w", key, err)
	}
	switch {
	case own.Epoch > epoch:
		return own, Fenced, nil
	case own.Epoch < epoch:
		return own, Behind, nil
	case own.Node == p.Node:
		return own, Owned, nil
	case own.Node == "":
		return own, Released, nil
	}
	return own, Foreign, nil
}

// Control reads fleet/control.json. It returns an error that wraps ErrControl
// when the file names another backend than the bucket; no file means bucket.
func (p *Prover) Control(ctx context.Context) error {
	data, _, err := objstore.ReadAll(ctx, p.Store, celld.ControlKey, maxDocument)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read control plane record: %w", err)
	}
	control, err := celld.ParseControl(data)
	if err != nil {
		return fmt.Errorf("read control plane record %s: %w", celld.ControlKey, err)
	}
	if !control.InBucket() {
		return fmt.Errorf("%s names backend %q: %w; export works only with ownership records in the bucket", celld.ControlKey, control.Backend, ErrControl)
	}
	return nil
}
