package exporter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"celldexport/envelope"
	"celldexport/internal/ledger"
)

// ledgers reads and writes the ledger objects of streams.
type ledgers struct {
	*kit
	node   *node
	random io.Reader
}

// writer is what the ledger knows this exporter as.
func (ls *ledgers) writer() ledger.Writer {
	return ledger.Writer{Node: ls.settings.Node, State: ls.node.id.ID}
}

func (ls *ledgers) ledgerKey(s *stream) string { return ledger.Key(s.scope.Cell, s.scope.Facet) }

// loadLedger reads the stream's ledger; nil when there is none.
func (ls *ledgers) loadLedger(ctx context.Context, s *stream) (*ledger.Document, error) {
	doc, _, err := ledger.Load(ctx, ls.fleet, ls.ledgerKey(s))
	if err != nil {
		return nil, waiting(StateWaiting, "read the ledger of %s: %w", s.doc.Scope, err)
	}
	return doc, nil
}

// ledgerOf is the stream's entry in the ledger, read when it is not known.
func (ls *ledgers) ledgerOf(ctx context.Context, s *stream) (*ledger.Stream, error) {
	if s.led != nil {
		return s.led, nil
	}
	doc, err := ls.loadLedger(ctx, s)
	if err != nil {
		return nil, err
	}
	l := entryOf(doc, s.doc.ID)
	if l == nil {
		return nil, waiting(StateWaiting, "the ledger %s does not know incarnation %d of %s: restore the object from a backup", ls.ledgerKey(s), s.doc.ID.Incarnation, s.doc.Scope)
	}
	s.led = l
	return l, nil
}

// entryOf finds a stream in its ledger.
func entryOf(doc *ledger.Document, id envelope.Stream) *ledger.Stream {
	if doc == nil {
		return nil
	}
	for i := range doc.Streams {
		if doc.Streams[i].Incarnation == id.Incarnation {
			return &doc.Streams[i]
		}
	}
	return nil
}

// updateLedger changes the stream's entry by compare-and-swap and returns it
// as written.
func (ls *ledgers) updateLedger(ctx context.Context, s *stream, change func(*ledger.Stream) error) (*ledger.Stream, error) {
	id := s.doc.ID
	doc, err := ledger.Update(ctx, ls.fleet, ls.ledgerKey(s), ls.random, func(d *ledger.Document) error {
		l := entryOf(d, id)
		if l == nil {
			return fmt.Errorf("incarnation %d is not in the ledger", id.Incarnation)
		}
		return change(l)
	})
	if err != nil {
		return nil, err
	}
	return entryOf(doc, id), nil
}

// pinning is a decision about the first unit of an epoch, and what of the
// ledger it was made on.
type pinning struct {
	epoch ledger.Epoch
	// known says that the ledger had the stream.
	known bool
	// from is the closed epoch whose end the first unit is diffed against, nil
	// for none.
	from *ledger.Epoch
}

// pin binds the stream and enters its epoch, in one write, unless the ledger
// has moved on since the decision: then the next round decides anew. life is
// the index of our state directory in the ledger's list.
func (ls *ledgers) pin(ctx context.Context, s *stream, id identity, p pinning) (led *ledger.Stream, life uint64, err error) {
	doc, err := ledger.Update(ctx, ls.fleet, ls.ledgerKey(s), ls.random, func(d *ledger.Document) error {
		l, err := bind(d, id, p)
		if err != nil {
			return err
		}
		life = l.Life(ls.node.id.ID)
		if p.epoch.Writer != ls.writer() {
			// An epoch that another state directory pinned stays as it is.
			return nil
		}
		bound := len(l.Epochs) == 0
		if p.from != nil {
			err = l.Continue(p.epoch, *p.from)
		} else {
			err = l.Pin(p.epoch)
		}
		if err != nil || !bound || len(id.seed) == 0 {
			return err
		}
		return l.SetTables(p.epoch.Epoch, id.seed)
	})
	switch {
	case errors.Is(err, ledger.ErrFenced):
		return nil, 0, waiting(StateFenced, "pin e%d of %s: %w", p.epoch.Epoch, s.doc.Scope, err)
	case errors.Is(err, ledger.ErrMoved):
		return nil, 0, waiting(StatePending, "pin e%d of %s: %w", p.epoch.Epoch, s.doc.Scope, err)
	case err != nil:
		return nil, 0, waiting(StateWaiting, "pin e%d of %s in the ledger: %w", p.epoch.Epoch, s.doc.Scope, err)
	}
	return entryOf(doc, id.Stream), life, nil
}

// bind finds the stream's entry or makes it, as the decision to pin knew it.
func bind(d *ledger.Document, id identity, p pinning) (*ledger.Stream, error) {
	name := ledger.Identity{Script: id.Script, Class: id.Class, Cell: id.Cell, Facet: id.Facet, Incarnation: id.Incarnation}
	if !p.known {
		return d.BindFirst(name, p.epoch)
	}
	return d.Bind(name)
}
