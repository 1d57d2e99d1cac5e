package exporter

import (
	"context"
	"fmt"
	"strings"

	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// before holds the residencies that another exporter of this node may have
// linked and certified: some builds of celld export by themselves. What that
// one said of an epoch is not in the ledger, and a second link and a second
// chain of the epoch would contradict it. So such an epoch is left to it, and
// the stream begins, by a re-base, with the cell's next activation.
//
// That there was another exporter is seen from its objects at the very first
// start, and kept in the node's object. What it may have begun is what the
// node's directory holds at the first walk that reads all of it; the list is
// stored before any residency begins, and counts whatever becomes of the state
// directory.
type before struct {
	*kit
	ledgers *ledgers
	agenda  *agenda
	// evidence is an object of the other exporter, "" when there was none.
	evidence string
	// epochs are the newest epochs of all cells that were there, nil while
	// they are not listed.
	epochs map[string]uint64
}

// toldByHand is the name, below the node's prefix, of an object that says that
// the node exported by itself: to a broker it did so without leaving any.
const toldByHand = "own-exporter"

// writtenBefore is an object that an exporter of the node wrote into the export
// bucket, "" when there is none. Before the node's first start it is another
// one's.
func writtenBefore(ctx context.Context, export objstore.Store, node string) (string, error) {
	prefix := bucket.Prefix + node + "/"
	for obj, err := range export.List(ctx, prefix, "") {
		if err != nil {
			return "", fmt.Errorf("look for objects of another exporter of node %s: %w", node, err)
		}
		if strings.HasSuffix(obj.Key, ".parquet") || obj.Key == prefix+toldByHand {
			return obj.Key, nil
		}
	}
	return "", nil
}

// openBefore reads the list, if there is to be one.
func openBefore(ctx context.Context, k *kit, evidence string) (*before, error) {
	bf := &before{kit: k, evidence: evidence}
	if evidence == "" {
		return bf, nil
	}
	have, err := ledger.LoadResidents(ctx, k.fleet, k.settings.Node)
	if err != nil {
		return nil, err
	}
	if have != nil {
		bf.epochs = have.Epochs
		return bf, nil
	}
	k.log.Warn("another exporter has written for this node before: the epochs that are there now are left to it, and each cell begins with its next activation; see that the other one is off, and evict or hand off cells that shall begin sooner", "object", evidence)
	return bf, nil
}

// settle makes the list, once. Until that is done nothing begins.
func (bf *before) settle(ctx context.Context) error {
	if bf.evidence == "" || bf.epochs != nil {
		return nil
	}
	if _, whole := bf.tail.Walked(); !whole {
		return nil
	}
	epochs := make(map[string]uint64)
	for _, scope := range bf.tail.Cells() {
		if rs := bf.tail.Cell(scope); len(rs) > 0 {
			epochs[scope] = rs[len(rs)-1].Epoch
		}
	}
	have, err := ledger.SaveResidents(ctx, bf.fleet, bf.settings.Node, epochs)
	if err != nil {
		return fmt.Errorf("store which cells are left to another exporter: %w", err)
	}
	bf.epochs = have.Epochs
	bf.log.Info("the cells that begin with their next activation are listed", "cells", len(have.Epochs), "list", ledger.ResidentsKey(bf.settings.Node))
	return nil
}

// left reports whether a residency that would begin is left to the other
// exporter: it was there when the list was made, or that is still to be made,
// and the ledger does not have it as begun by us.
func (bf *before) left(ctx context.Context, s *stream, v view, listed map[string]uint64) (bool, error) {
	switch {
	case bf.evidence == "" || !v.enters:
		return false, nil
	case listed != nil && v.disk.Epoch > listed[s.doc.Scope]:
		return false, nil
	}
	doc, err := bf.ledgers.loadLedger(ctx, s)
	if err != nil {
		return false, err
	}
	led := newestLife(doc)
	if led == nil {
		// A ledger that is missing is an error of its own.
		return !s.doc.Bound(), nil
	}
	_, pinned := led.Epoch(v.disk.Epoch)
	return !pinned, nil
}

// pass goes past a residency that is left and says so. Nothing is asked about
// it again.
func (bf *before) pass(s *stream, v view) {
	s.left = v.disk.Epoch
	bf.tail.Advance(s.doc.Scope, v.disk.Epoch, lastTXID(v))
	bf.agenda.park(s)
	if !v.disk.Live {
		s.status.set(bf.now(), StateEnded, fmt.Sprintf("e%d is left to the node's own exporter", v.disk.Epoch))
		return
	}
	s.status.set(bf.now(), StateWaiting, fmt.Sprintf("e%d of %s was there when this node's own exporter had written (%s): it begins with the cell's next activation",
		v.disk.Epoch, s.doc.Scope, bf.evidence))
}

// between reports whether an epoch that was left lies between the ledger's
// newest entry below an epoch, or none, and that epoch: what the consumer
// holds of it is not known.
func (bf *before) between(scope string, led *ledger.Stream, epoch uint64) bool {
	left := bf.epochs[scope]
	if left == 0 || left >= epoch {
		return false
	}
	if led == nil {
		return true
	}
	pred, ok := led.Predecessor(epoch)
	return !ok || pred.Epoch < left
}
