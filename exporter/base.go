package exporter

import (
	"context"
	"errors"
	"fmt"
	"os"

	"celldexport/envelope"
	"celldexport/envelope/rowset"
	"celldexport/exporter/state"
	"celldexport/internal/celld"
	"celldexport/internal/chain"
	"celldexport/internal/ledger"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
	"celldexport/ltxtail/proof"
)

// bases decides what the first unit of a residency is diffed against.
type bases struct {
	*kit
	prover  *proof.Prover
	ledgers *ledgers
	shadows *shadows
	journal *journal
	entries *entries
	units   *units
	closes  *closes
	agenda  *agenda
	scripts *scripts
	before  *before
}

// position is an epoch and a txid of it.
type position struct{ epoch, txid uint64 }

func (p *position) numbers() (epoch, txid *uint64) {
	if p == nil {
		return nil, nil
	}
	return &p.epoch, &p.txid
}

// baseKind is what the first unit of a residency is diffed against.
type baseKind uint8

const (
	// rebase: nothing that the consumer holds for sure; the state goes out
	// as a snapshot.
	rebase baseKind = iota
	// keep: our own shadow, at the position where the residency before was
	// closed.
	keep
	// fresh: the empty database, because the cell provably never was before.
	fresh
	// restored: the bucket's state at exactly the position where another
	// exporter closed its residency.
	restored
)

// basis is the decision on how a residency begins.
type basis struct {
	kind baseKind
	// prev is the position the link names, nil for none.
	prev *position
	mode envelope.Mode
	// files restore prev when kind is restored.
	files []chain.File
	// pin is the ledger's entry when the epoch is pinned already.
	pin *ledger.Epoch
	// from is the ledger's entry of prev, nil when the epoch is pinned already.
	from *ledger.Epoch
}

// begin starts a residency: decides its base, binds the stream and pins the
// epoch in the ledger, and spools the link. begun is false when the epoch is
// over already.
func (bs *bases) begin(ctx context.Context, s *stream, v view, res proof.Result) (begun bool, err error) {
	doc, err := bs.ledgers.loadLedger(ctx, s)
	if err != nil {
		return false, err
	}
	if err := (origins{bs.kit}).settle(ctx, s, v); err != nil {
		return false, err
	}
	led := newestLife(doc)
	if led == nil && s.doc.Bound() {
		return false, waiting(StateWaiting, "the ledger %s of a stream that was exported is missing: restore the object from a backup; without it a table's generations would begin anew", ledger.Key(s.scope.Cell, s.scope.Facet))
	}
	if led != nil {
		if err := bs.scripts.holds(ctx, s.scope, led.Script); err != nil {
			return false, err
		}
		if pin, ok := led.Epoch(v.disk.Epoch); ok {
			if pin.Closed != nil {
				if reopened, err := bs.reenter(ctx, s, v, pin, res); err != nil || !reopened {
					return false, err
				}
				pin.Closed = nil
			}
			return true, bs.resume(ctx, s, v, led, pin, res)
		}
		if newest, ok := led.Newest(); ok && newest.Epoch > v.disk.Epoch {
			return false, waiting(StateFenced, "e%d of %s is pinned in the ledger above e%d on disk", newest.Epoch, s.doc.Scope, v.disk.Epoch)
		}
	}
	b, err := bs.decide(ctx, s, v, led, res)
	if err != nil {
		return false, err
	}
	if b.kind == rebase {
		return true, bs.rebase(ctx, s, v, led, nil)
	}
	return true, bs.start(ctx, s, v, led, b, res)
}

// reenter decides about an epoch that is closed in the ledger and of which
// our state holds nothing. Our own close is withdrawn when the cell goes on;
// what another state directory of this node closed before it was lost stays
// closed.
func (bs *bases) reenter(ctx context.Context, s *stream, v view, pin ledger.Epoch, res proof.Result) (bool, error) {
	switch {
	case v.disk.Live && res.Verdict == proof.Owned && pin.Writer == bs.ledgers.writer():
		return true, bs.closes.withdraw(ctx, s, v.disk.Epoch)
	case v.disk.Live && res.Verdict == proof.Owned:
		return false, waiting(StateWaiting, "e%d of %s was closed at txid %d by state %s, which is not ours: it goes on with the cell's next activation", v.disk.Epoch, s.doc.Scope, *pin.Closed, pin.Writer.State)
	}
	s.status.set(bs.now(), StateEnded, fmt.Sprintf("e%d was closed at txid %d by state %s of node %s", v.disk.Epoch, *pin.Closed, pin.Writer.State, pin.Writer.Node))
	bs.tail.Advance(s.doc.Scope, v.disk.Epoch, lastTXID(v))
	bs.agenda.park(s)
	return false, nil
}

// newestLife is the stream's highest incarnation in the ledger.
func newestLife(doc *ledger.Document) *ledger.Stream {
	if doc == nil || len(doc.Streams) == 0 {
		return nil
	}
	return &doc.Streams[len(doc.Streams)-1]
}

// decide chooses the base of a residency that the ledger does not know.
func (bs *bases) decide(ctx context.Context, s *stream, v view, led *ledger.Stream, res proof.Result) (basis, error) {
	if bs.before.between(s.doc.Scope, led, v.disk.Epoch) {
		return basis{}, nil
	}
	if led == nil {
		if v.paged() {
			return basis{}, nil
		}
		return bs.decideUnknown(ctx, s, v, res)
	}
	pred, ok, err := bs.predecessor(ctx, s, led, v.disk.Epoch)
	if err != nil || !ok {
		return basis{}, err
	}
	if between, err := bs.objectsBetween(ctx, s, pred.Epoch, v.disk.Epoch); err != nil || between {
		return basis{}, err
	}
	if pred.Closed == nil {
		if s.unclosed++; s.unclosed <= patience {
			return basis{}, waiting(StatePending, "e%d of %s is not closed by its exporter on node %s yet", pred.Epoch, s.doc.Scope, pred.Writer.Node)
		}
		return basis{}, nil
	}
	if *pred.Closed < pred.StartTXID || v.paged() && *pred.Closed != v.target.After {
		// Nothing of it was exported, or not exactly up to where a paged
		// residency continues: its first file holds no image to diff.
		return basis{}, nil
	}
	at := &position{pred.Epoch, *pred.Closed}
	mode := envelope.ModeClone
	if v.paged() {
		if !s.origin.marked {
			return basis{}, nil
		}
		if err := (origins{bs.kit}).skips(ctx, s, at.epoch, v.disk.Epoch, at.txid); err != nil {
			return basis{}, err
		}
		mode = envelope.ModePaged
	}
	if sh := s.doc.Shadow; sh.File != "" && sh.Epoch == at.epoch && sh.TXID == at.txid && bs.shadows.hasShadow(sh.File) {
		return basis{kind: keep, prev: at, mode: mode, from: &pred}, nil
	}
	if lost, err := bs.lostSince(ctx, pred.Writer); err != nil || lost {
		return basis{}, err
	}
	files, err := chain.List(ctx, bs.fleet, s.doc.Scope)
	if err != nil {
		return basis{}, err
	}
	plan, err := chain.Plan(files, at.epoch, at.txid)
	if err != nil {
		// The bucket does not restore to exactly where the exporter ended.
		return basis{}, nil
	}
	return basis{kind: restored, prev: at, mode: mode, files: plan, from: &pred}, nil
}

// predecessor is the newest pin below an epoch. When that is ours and its
// close is not in the ledger, it is entered again: an abandoned eviction had
// withdrawn it and a crash came in between.
func (bs *bases) predecessor(ctx context.Context, s *stream, led *ledger.Stream, epoch uint64) (ledger.Epoch, bool, error) {
	pred, ok := led.Predecessor(epoch)
	r := &s.doc.Residency
	if !ok || pred.Closed != nil || pred.Writer != bs.ledgers.writer() || r.Epoch != pred.Epoch || !r.Closed {
		return pred, ok, nil
	}
	r.Closed = false
	if err := bs.closes.close(ctx, s); err != nil {
		return pred, false, err
	}
	if s.led != nil {
		pred, ok = s.led.Predecessor(epoch)
	}
	return pred, ok, nil
}

// lostSince reports whether another state directory speaks for a writer's
// node by now: what the writer had spooled and not delivered is lost with its
// own.
func (bs *bases) lostSince(ctx context.Context, w ledger.Writer) (bool, error) {
	doc, _, err := ledger.LoadNode(ctx, bs.fleet, w.Node)
	if err != nil {
		return false, fmt.Errorf("see whether %s still has its state: %w", w.Node, err)
	}
	return doc == nil || doc.State != w.State, nil
}

// patience is how many rounds a residency waits for the close of the one
// before.
const patience = 2

// decideUnknown is decide for a cell that no exporter has entered: it is
// fresh when the bucket shows that it never was before.
func (bs *bases) decideUnknown(ctx context.Context, s *stream, v view, res proof.Result) (basis, error) {
	files, err := chain.List(ctx, bs.fleet, s.doc.Scope)
	if err != nil {
		return basis{}, err
	}
	for _, f := range files {
		if f.Epoch < v.disk.Epoch {
			return basis{}, nil
		}
	}
	_, _, err = objstore.ReadAll(ctx, bs.fleet, celld.RetiredKey(s.doc.Scope), maxDocument)
	if err == nil {
		return basis{}, nil
	}
	if !errors.Is(err, objstore.ErrNotFound) {
		return basis{}, fmt.Errorf("look for retired epochs: %w", err)
	}
	if res.Units[0].Min != 1 {
		return basis{}, nil
	}
	return basis{kind: fresh, mode: envelope.ModeFresh}, nil
}

// maxDocument bounds small documents of the bucket.
const maxDocument = 64 << 10

// objectsBetween reports whether an epoch between two holds objects: a
// residency that nobody exported.
func (bs *bases) objectsBetween(ctx context.Context, s *stream, low, high uint64) (bool, error) {
	if high-low > maxEpochLists {
		files, err := chain.List(ctx, bs.fleet, s.doc.Scope)
		for _, f := range files {
			if f.Epoch > low && f.Epoch < high {
				return true, nil
			}
		}
		return false, err
	}
	for epoch := low + 1; epoch < high; epoch++ {
		files, err := chain.ListEpoch(ctx, bs.fleet, s.doc.Scope, epoch)
		if err != nil || len(files) > 0 {
			return len(files) > 0, err
		}
	}
	return false, nil
}

// maxEpochLists is how many epochs are listed one by one before one listing
// of the whole cell is cheaper.
const maxEpochLists = 8

// start begins a residency on a base that the consumer holds: its first unit
// is diffed before the epoch is pinned, so a broken one pins nothing.
func (bs *bases) start(ctx context.Context, s *stream, v view, led *ledger.Stream, b basis, res proof.Result) error {
	if err := bs.takeBase(ctx, s, v, b); err != nil {
		return err
	}
	first := res.Units[0]
	st, change, err := bs.units.diffUnit(ctx, s, first)
	if err != nil {
		return err
	}
	defer change.Close()
	id, err := bs.identify(ctx, s, led, change, ledger.Mark{Epoch: v.disk.Epoch, TXID: st.info.MaxTXID})
	if err != nil {
		return err
	}
	pin := b.pin
	if pin == nil {
		prevEpoch, prevTXID := b.prev.numbers()
		pin = &ledger.Epoch{Epoch: v.disk.Epoch, StartTXID: v.target.After + 1, Mode: string(b.mode), PrevEpoch: prevEpoch, PrevTXID: prevTXID, Writer: bs.ledgers.writer()}
	}
	linked := s.doc.Residency.Epoch == v.disk.Epoch && s.doc.Residency.Linked
	p := pinning{epoch: *pin, known: led != nil, from: b.from}
	if err := bs.enter(ctx, s, id, p, state.Residency{Spooled: pin.StartTXID - 1, Linked: linked}); err != nil {
		return err
	}
	if !linked {
		name, _, err := rowset.Metadata(change, s.doc.Scope)
		if err != nil {
			return fmt.Errorf("read the cell's name: %w", err)
		}
		if err := bs.entries.spoolLink(s, *pin, st.info.Timestamp, name); err != nil {
			return err
		}
	}
	return bs.units.spoolUnit(ctx, s, st, change)
}

// enter pins the epoch in the ledger and takes the residency into the
// document, durably, before anything of it is spooled.
func (bs *bases) enter(ctx context.Context, s *stream, id identity, p pinning, r state.Residency) error {
	led, life, err := bs.ledgers.pin(ctx, s, id, p)
	if err != nil {
		return err
	}
	if err := errors.Join(bs.journal.catchUp(ctx, s), bs.at(StepEnter)); err != nil {
		return err
	}
	r.Epoch, r.Start, r.Pinned = p.epoch.Epoch, p.epoch.StartTXID, true
	if s.doc.Residency.Epoch == r.Epoch {
		r.Next = s.doc.Residency.Next
	}
	s.led = led
	s.enter(r)
	s.doc.ID, s.doc.Life = id.Stream, life
	return bs.journal.saveNow(ctx, s)
}

// takeBase makes the shadow of the stream the state that a basis names. The
// document names the file before anything depends on it.
func (bs *bases) takeBase(ctx context.Context, s *stream, v view, b basis) error {
	if b.kind == keep {
		return bs.journal.openBase(s)
	}
	sh := state.Shadow{File: shadowName(s.doc.Scope, envelope.Position{Epoch: v.disk.Epoch})}
	if b.kind == restored {
		sh = state.Shadow{File: shadowName(s.doc.Scope, envelope.Position{Epoch: b.prev.epoch, TXID: b.prev.txid}), Epoch: b.prev.epoch, TXID: b.prev.txid}
	}
	if err := bs.journal.releaseBase(ctx, s); err != nil {
		return err
	}
	if err := bs.prepareShadow(ctx, s, &sh, b); err != nil {
		return err
	}
	if err := bs.at(StepBase); err != nil {
		return err
	}
	bs.journal.replaceShadow(s, sh)
	if err := bs.journal.saveNow(ctx, s); err != nil {
		return err
	}
	return bs.journal.openBase(s)
}

// prepareShadow makes the file that the first unit is diffed against.
func (bs *bases) prepareShadow(ctx context.Context, s *stream, sh *state.Shadow, b basis) error {
	switch b.kind {
	case fresh:
		f, err := bs.shadows.create(sh.File)
		if err != nil {
			return stateFailed(err)
		}
		return stateFailed(errors.Join(f.Sync(), f.Close()))
	case restored:
		info, err := bs.restore(ctx, s, sh.File, b.files)
		sh.PageSize, sh.Commit = info.PageSize, info.Commit
		return err
	}
	return nil
}

// restore writes the state that bucket files lead to into a shadow file.
func (bs *bases) restore(ctx context.Context, s *stream, name string, files []chain.File) (ltxfile.Info, error) {
	bs.journal.keep(name)
	f, err := bs.shadows.create(name)
	if err != nil {
		return ltxfile.Info{}, stateFailed(err)
	}
	info, n, err := chain.Restore(ctx, bs.fleet, files, f)
	bs.metrics.restoredBytes.Add(float64(n))
	if err == nil {
		err = stateFailed(f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(bs.shadows.shadowPath(name)) // it is of no use, and is made anew
		return ltxfile.Info{}, fmt.Errorf("restore %s from the bucket: %w", s.doc.Scope, err)
	}
	return info, nil
}

// identity is a stream's name in records and, when it is bound now, the table
// generations that its cell kept for itself.
type identity struct {
	envelope.Stream
	seed map[string][]ledger.Generation
}

// identify names the stream as the ledger has it, else binds it now: what the
// cell says of its own incarnation and generations counts at that moment only.
func (bs *bases) identify(ctx context.Context, s *stream, led *ledger.Stream, img rowset.Image, at ledger.Mark) (identity, error) {
	if led != nil {
		return identity{Stream: streamOf(led)}, nil
	}
	script, err := bs.scripts.find(ctx, s.scope)
	if err != nil {
		return identity{}, waiting(StateWaiting, "%w", err)
	}
	_, incarnation, err := rowset.Metadata(img, s.doc.Scope)
	if err != nil {
		return identity{}, fmt.Errorf("read the cell's incarnation: %w", err)
	}
	registry, err := rowset.ExportRegistry(img)
	if err != nil {
		return identity{}, fmt.Errorf("read the cell's table generations: %w", err)
	}
	id := identity{
		Stream: envelope.Stream{Script: script, Class: s.scope.Class(), Cell: s.scope.Cell, Facet: s.scope.Facet, Incarnation: at.Epoch},
		seed:   rowset.Seed(registry, at),
	}
	if incarnation != nil {
		id.Incarnation = *incarnation
	}
	return id, nil
}

func streamOf(l *ledger.Stream) envelope.Stream {
	return envelope.Stream{Script: l.Script, Class: l.Class, Cell: l.Cell, Facet: l.Facet, Incarnation: l.Incarnation}
}
