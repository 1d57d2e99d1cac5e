package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Stream is the entry of one incarnation.
type Stream struct {
	Identity
	// Forgotten and States are the state directories that exported the stream,
	// in the order they came: Forgotten of them by number only, then the
	// newest by id.
	Forgotten uint64   `json:"states_forgotten,omitempty"`
	States    []string `json:"states,omitempty"`
	// Epochs holds the newest pinned epochs, in ascending order.
	Epochs []Epoch `json:"epochs,omitempty"`
	// Tables holds, by exported name and in ascending order, the generations
	// of every table there ever was, denied ones included.
	Tables map[string][]Generation `json:"tables,omitempty"`
}

// The link modes of an epoch.
const (
	ModeFresh = "fresh"
	ModeClone = "clone"
	ModePaged = "paged"
)

// Epoch is a pin: the stream's start in an epoch, and its end there once the
// residency is over.
type Epoch struct {
	Epoch uint64 `json:"epoch"`
	// StartTXID is the first txid of the epoch that is exported.
	StartTXID uint64 `json:"start_txid"`
	// Mode is how the epoch's link says it continues.
	Mode string `json:"mode"`
	// PrevEpoch and PrevTXID name what the epoch continues, both nil for
	// nothing.
	PrevEpoch *uint64 `json:"prev_epoch"`
	PrevTXID  *uint64 `json:"prev_txid"`
	// Writer is who pinned the epoch and, when that differs, who closed it.
	Writer Writer `json:"writer"`
	// Closed is the last txid spooled in the epoch, StartTXID-1 when none was;
	// nil while the residency goes on.
	Closed *uint64 `json:"closed,omitempty"`
}

// Writer is an exporter: a node, and the state directory it runs on.
type Writer struct {
	Node  string `json:"node"`
	State string `json:"state"`
}

const (
	// keptEpochs is how many pins a stream keeps.
	keptEpochs = 4
	// keptStates is how many state directories are kept by id. One that is
	// forgotten and comes back is a new one, which costs nothing.
	keptStates = 32
)

// Life returns the number of a state directory in the stream: how many others
// exported it before. A new one is entered.
func (s *Stream) Life(state string) uint64 {
	if at := slices.Index(s.States, state); at >= 0 {
		return s.Forgotten + uint64(at)
	}
	s.States = append(s.States, state)
	if old := len(s.States) - keptStates; old > 0 {
		s.States = slices.Delete(s.States, 0, old)
		s.Forgotten += uint64(old)
	}
	return s.Forgotten + uint64(len(s.States)) - 1
}

// Epoch returns the pin of an epoch.
func (s *Stream) Epoch(epoch uint64) (Epoch, bool) {
	if at, ok := s.find(epoch); ok {
		return s.Epochs[at], true
	}
	return Epoch{}, false
}

// Newest returns the pin of the highest epoch.
func (s *Stream) Newest() (Epoch, bool) {
	if len(s.Epochs) == 0 {
		return Epoch{}, false
	}
	return s.Epochs[len(s.Epochs)-1], true
}

// Predecessor returns the pin of the highest epoch below another.
func (s *Stream) Predecessor(epoch uint64) (Epoch, bool) {
	at, _ := s.find(epoch)
	if at == 0 {
		return Epoch{}, false
	}
	return s.Epochs[at-1], true
}

func (s *Stream) find(epoch uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Epochs, epoch, func(e Epoch, n uint64) int { return cmp.Compare(e.Epoch, n) })
}

// Pin enters an epoch. It is done before anything of the epoch is exported and
// once: the same values by the same writer again are no error, other ones are
// ErrPinned, and ErrFenced is the answer below a higher epoch.
func (s *Stream) Pin(e Epoch) error {
	if err := e.check(); err != nil {
		return fmt.Errorf("pin e%d of %s: %w", e.Epoch, s.Identity, err)
	}
	if e.Closed != nil {
		return fmt.Errorf("pin e%d of %s: %w", e.Epoch, s.Identity, ErrClosed)
	}
	newest, any := s.Newest()
	switch {
	case any && newest.Epoch > e.Epoch:
		return fmt.Errorf("pin e%d of %s: e%d is pinned by %s: %w", e.Epoch, s.Identity, newest.Epoch, newest.Writer.Node, ErrFenced)
	case any && newest.Epoch == e.Epoch:
		if !newest.samePin(e) {
			return fmt.Errorf("pin e%d of %s: %s holds it from txid %d (%s): %w", e.Epoch, s.Identity, newest.Writer.Node, newest.StartTXID, newest.Mode, ErrPinned)
		}
		return nil
	}
	s.Epochs = append(s.Epochs, e)
	if old := len(s.Epochs) - keptEpochs; old > 0 {
		s.Epochs = slices.Delete(s.Epochs, 0, old)
	}
	s.shrink()
	return nil
}

// Continue is Pin for an epoch whose first unit is diffed against the state at
// which another one was closed. from is that one's entry as the caller read it;
// it must be the newest below the epoch still, and end where it did: a close
// that was withdrawn meanwhile lets units follow that the diff knows nothing
// of. Otherwise the answer is ErrMoved and nothing is entered. The same pin
// again is no error, whatever became of its predecessor: once it is there, no
// close below it is withdrawn.
func (s *Stream) Continue(e, from Epoch) error {
	pred, ok := s.Predecessor(e.Epoch)
	_, again := s.Epoch(e.Epoch)
	switch {
	case from.Closed == nil || !same(e.PrevEpoch, &from.Epoch) || !same(e.PrevTXID, from.Closed):
		return fmt.Errorf("pin e%d of %s: it does not continue the end of e%d", e.Epoch, s.Identity, from.Epoch)
	case again:
	case !ok || !pred.samePin(from) || !same(pred.Closed, from.Closed):
		return fmt.Errorf("pin e%d of %s on the end of e%d at txid %d: %w", e.Epoch, s.Identity, from.Epoch, *from.Closed, ErrMoved)
	}
	return s.Pin(e)
}

// check refuses a pin that says nothing sensible.
func (e Epoch) check() error {
	switch {
	case e.Mode != ModeFresh && e.Mode != ModeClone && e.Mode != ModePaged:
		return fmt.Errorf("unknown mode %q", e.Mode)
	case e.Writer.Node == "" || e.Writer.State == "":
		return fmt.Errorf("writer %+v is not named", e.Writer)
	case e.StartTXID == 0:
		return fmt.Errorf("txids start at 1, not at 0")
	case (e.PrevEpoch == nil) != (e.PrevTXID == nil):
		return fmt.Errorf("previous epoch and txid go together")
	case e.PrevEpoch != nil && *e.PrevEpoch >= e.Epoch:
		return fmt.Errorf("e%d cannot precede it", *e.PrevEpoch)
	case e.Closed != nil && *e.Closed < e.StartTXID-1:
		return fmt.Errorf("closed at txid %d before its start at %d", *e.Closed, e.StartTXID)
	}
	return nil
}

// samePin reports whether two entries are one pin, closed or not.
func (e Epoch) samePin(o Epoch) bool {
	return e.Epoch == o.Epoch && e.StartTXID == o.StartTXID && e.Mode == o.Mode && e.Writer == o.Writer &&
		same(e.PrevEpoch, o.PrevEpoch) && same(e.PrevTXID, o.PrevTXID)
}

func same(a, b *uint64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// Close ends the residency in an epoch at txid, the last one spooled, or the
// one before its start when none was. Afterwards nothing of the epoch is ever
// spooled. It is done once, by the node that holds the epoch, and only while
// no higher one is pinned; the same close again is no error.
//
// A node that lost its state directory and went on with another may close what
// the old one pinned. The entry is the new one's then, which alone has the
// stream's state at txid.
func (s *Stream) Close(epoch, txid uint64, w Writer) error {
	at, err := s.held(epoch, w)
	if err != nil {
		return fmt.Errorf("close e%d of %s at txid %d: %w", epoch, s.Identity, txid, err)
	}
	e := &s.Epochs[at]
	switch {
	case e.Closed != nil && *e.Closed == txid && e.Writer == w:
		return nil // also when a higher epoch was pinned since
	case at < len(s.Epochs)-1:
		return fmt.Errorf("close e%d of %s at txid %d: e%d is pinned: %w", epoch, s.Identity, txid, s.Epochs[len(s.Epochs)-1].Epoch, ErrFenced)
	case e.Closed != nil:
		return fmt.Errorf("close e%d of %s at txid %d: it ends at %d by state %s: %w", epoch, s.Identity, txid, *e.Closed, e.Writer.State, ErrClosed)
	case txid < e.StartTXID-1:
		return fmt.Errorf("close e%d of %s at txid %d: it starts at %d", epoch, s.Identity, txid, e.StartTXID)
	}
	e.Closed, e.Writer = &txid, w
	return nil
}

// Withdraw takes a close back: the eviction was abandoned and the residency
// goes on. Only the writer that closed may, and only while no higher epoch is
// pinned. Whether the node still holds the cell is for the caller to know.
func (s *Stream) Withdraw(epoch uint64, w Writer) error {
	at, err := s.held(epoch, w)
	if err != nil {
		return fmt.Errorf("withdraw the close of e%d of %s: %w", epoch, s.Identity, err)
	}
	e := &s.Epochs[at]
	switch {
	case at < len(s.Epochs)-1:
		return fmt.Errorf("withdraw the close of e%d of %s: e%d is pinned: %w", epoch, s.Identity, s.Epochs[len(s.Epochs)-1].Epoch, ErrFenced)
	case e.Closed == nil:
		return nil
	case e.Writer != w:
		return fmt.Errorf("withdraw the close of e%d of %s: state %s closed it: %w", epoch, s.Identity, e.Writer.State, ErrClosed)
	}
	e.Closed = nil
	return nil
}

// held returns the index of an epoch's pin when the writer's node holds it.
func (s *Stream) held(epoch uint64, w Writer) (int, error) {
	at, ok := s.find(epoch)
	switch {
	case !ok && at < len(s.Epochs):
		return 0, fmt.Errorf("e%d is pinned: %w", s.Epochs[len(s.Epochs)-1].Epoch, ErrFenced)
	case !ok:
		return 0, ErrNotPinned
	case s.Epochs[at].Writer.Node != w.Node:
		return 0, fmt.Errorf("node %s holds it, not %s: %w", s.Epochs[at].Writer.Node, w.Node, ErrFenced)
	}
	return at, nil
}
