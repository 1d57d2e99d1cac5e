// Package ledger is the small object per stream that survives the nodes: who
// exported the stream in which epoch, from where to where, and which
// generations its tables had. It lies in the fleet bucket, is changed by
// compare-and-swap only, and must never be expired: without it a stream cannot
// be continued, only begun anew under another incarnation.
//
// A [Document] and its [Stream]s are plain values with the rules as methods;
// [Load] and [Update] move them between memory and bucket. Every rule can be
// applied twice with one effect, because a write whose answer was lost is
// repeated on whatever is found then.
//
// The node object beside the ledgers tells a state directory whether it is
// still the one that speaks for its node. For a node that another exporter had
// written for, [Residents] lists what is left to that one.
package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Format is the newest format of a ledger that this program reads and writes.
const Format = 1

var (
	// ErrFenced says that a higher epoch, a later incarnation or another node
	// has the stream: nothing more of this epoch may be entered.
	ErrFenced = errors.New("fenced: the stream has moved on")
	// ErrPinned says that the epoch is pinned with other values or by another
	// writer. An epoch is pinned once.
	ErrPinned = errors.New("the epoch is pinned otherwise")
	// ErrNotPinned says that the epoch must be pinned first.
	ErrNotPinned = errors.New("the epoch is not pinned")
	// ErrMoved says that the ledger is not as it was when the pin was decided
	// on: what it would continue goes on, ends elsewhere, or is not the newest
	// epoch any more. Nothing was entered, and the decision is to be made anew.
	ErrMoved = errors.New("the ledger has moved on since it was read")
	// ErrClosed says that the epoch is closed, once and for good.
	ErrClosed = errors.New("the epoch is closed")
	// ErrIdentity says that the ledger belongs to another script, class, cell
	// or facet.
	ErrIdentity = errors.New("the ledger binds another stream")
	// ErrCorrupt says that an object cannot be read as what it should be. It
	// is never taken for an absent one.
	ErrCorrupt = errors.New("unusable object")
	// ErrNewer says that an object was written by a newer program.
	ErrNewer = errors.New("written by a newer program")
	// ErrTaken says that the node object changed hands.
	ErrTaken = errors.New("the node object is another's")
)

// Document is a ledger as it lies in the bucket. Its JSON has the field order
// below and is the same for equal documents.
type Document struct {
	Format int `json:"format"`
	// Token is random and new in every write, which tells a writer whose
	// answer was lost that the write was its own.
	Token string `json:"token"`
	// Facets is the counter that facet incarnations are drawn from. Only a
	// root's ledger has it.
	Facets uint64 `json:"facets,omitempty"`
	// Streams holds one entry per incarnation, in ascending order.
	Streams []Stream `json:"streams"`
}

// Identity names a stream. Cell is "Class:id", Facet the path below the root,
// "" for the root itself.
type Identity struct {
	Script      string `json:"script"`
	Class       string `json:"class"`
	Cell        string `json:"cell"`
	Facet       string `json:"facet,omitempty"`
	Incarnation uint64 `json:"incarnation"`
}

// keptStreams is how many incarnations a ledger holds. Nothing is ever written
// to an older one again; facets that come and go would make the object grow
// without end.
const keptStreams = 8

// Bind returns the stream of an incarnation and enters it when it is new. The
// first entry binds script, class, cell and facet for good: another one later
// is ErrIdentity, an error of that stream and no new stream. An incarnation
// below the newest is ErrFenced. The pointer is valid until the next Bind.
func (d *Document) Bind(id Identity) (*Stream, error) {
	if id.Class == "" || id.Cell == "" {
		return nil, fmt.Errorf("bind %s: class and cell must be named: %w", id, ErrIdentity)
	}
	if len(d.Streams) > 0 {
		newest := &d.Streams[len(d.Streams)-1]
		if !newest.sameName(id) {
			return nil, fmt.Errorf("bind %s: the ledger is that of %s: %w", id, newest.Identity, ErrIdentity)
		}
		if id.Incarnation == newest.Incarnation {
			return newest, nil
		}
		if id.Incarnation < newest.Incarnation {
			return nil, fmt.Errorf("bind %s: incarnation %d is newer: %w", id, newest.Incarnation, ErrFenced)
		}
	}
	d.Streams = append(d.Streams, Stream{Identity: id})
	if old := len(d.Streams) - keptStreams; old > 0 {
		d.Streams = slices.Delete(d.Streams, 0, old)
	}
	return &d.Streams[len(d.Streams)-1], nil
}

// BindFirst is Bind, for the pin of its first epoch, of a stream that the
// ledger did not have when it was read. When it has one by now, and not by this
// pin, that is ErrMoved: what was decided for a cell that nobody had exported
// does not hold, its incarnation least of all.
func (d *Document) BindFirst(id Identity, e Epoch) (*Stream, error) {
	if len(d.Streams) > 0 {
		have, ok := d.Streams[len(d.Streams)-1].Epoch(e.Epoch)
		if !ok || !have.samePin(e) {
			return nil, fmt.Errorf("bind %s: the ledger has %s by now: %w", id, d.Streams[len(d.Streams)-1].Identity, ErrMoved)
		}
	}
	return d.Bind(id)
}

// sameName reports whether two identities name incarnations of one stream.
func (id Identity) sameName(other Identity) bool {
	other.Incarnation = id.Incarnation
	return id == other
}

// String names the stream in messages.
func (id Identity) String() string {
	name := id.Cell
	if id.Facet != "" {
		name += " facet " + id.Facet
	}
	return fmt.Sprintf("%s of script %q, incarnation %d", name, id.Script, id.Incarnation)
}

// facetBits is the width of the counter in a facet's incarnation; the root's
// epoch is above it.
const facetBits = 40

// DrawFacet returns the incarnation of a facet first seen in this epoch of its
// root. Numbers drawn later are larger.
func (d *Document) DrawFacet(rootEpoch uint64) (uint64, error) {
	if d.Facets+1 >= 1<<facetBits {
		return 0, fmt.Errorf("draw a facet incarnation: all %d numbers are used", d.Facets)
	}
	d.Facets++
	return d.ThroughFacets(rootEpoch)
}

// ThroughFacets returns the largest incarnation drawn so far, as one drawn in
// this epoch of the root would be numbered: the bound of a deletion that must
// not reach facets seen later.
func (d *Document) ThroughFacets(rootEpoch uint64) (uint64, error) {
	if rootEpoch >= 1<<(64-facetBits) {
		return 0, fmt.Errorf("number a facet: epoch %d does not fit", rootEpoch)
	}
	return rootEpoch<<facetBits | d.Facets, nil
}

// clone returns a deep copy.
func (d *Document) clone() *Document {
	c := *d
	c.Streams = slices.Clone(d.Streams)
	for i := range c.Streams {
		s := &c.Streams[i]
		s.States, s.Epochs = slices.Clone(s.States), slices.Clone(s.Epochs)
		s.Tables = maps.Clone(s.Tables)
		for name, list := range s.Tables {
			s.Tables[name] = slices.Clone(list)
		}
	}
	return &c
}
