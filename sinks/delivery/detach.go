package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"celldexport/envelope"
)

// attachment is whether a sink is attached, what it was handed and what it
// lacks.
type attachment struct {
	o *outlet

	// offering keeps handing out and detaching apart; offered is the last
	// entry that the sink may have been handed.
	offering sync.Mutex
	offered  uint64
	rebases  rebases

	mu      sync.Mutex
	away    *absence // nil while attached
	fell    uint64   // how often streams fell behind
	cleared uint64   // fell, when none was behind any more
}

// MakeRoom detaches sinks that hold up a full spool: those that have not
// acknowledged everything in it while another sink has. What a sink was handed
// stays for it; what comes behind is passed over, and its streams fall behind.
// A sink whose absence would free nothing is not what holds the spool up. What
// is kept for sinks that the settings no longer name is given up before
// anything else. MakeRoom reports whether there may be room now.
func (e *Engine) MakeRoom(ctx context.Context) (bool, error) {
	if given, err := e.removed.giveUp(ctx); err != nil || given {
		return given, err
	}
	_, written := e.spool.files.usage()
	var late []*outlet
	whole := false
	for _, o := range e.outlets {
		switch acked, _ := o.cursor(); {
		case o.place.absence() != nil:
		case acked >= written:
			whole = true
		case frees(e.spool.files, o.place.last(), written):
			late = append(late, o)
		}
	}
	if !whole || len(late) == 0 {
		return false, nil
	}
	for _, o := range late {
		if err := o.place.detach(ctx); err != nil {
			return false, err
		}
	}
	return true, e.release()
}

// last is the last entry that the sink was handed.
func (a *attachment) last() uint64 {
	a.offering.Lock()
	defer a.offering.Unlock()
	acked, _ := a.o.cursor()
	return max(a.offered, acked)
}

// frees reports whether a file holds nothing but entries above one and up to
// another.
func frees(s *segments, above, upto uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.list, func(seg *segment) bool {
		whole := seg != s.active() || seg.size >= s.size/4
		return whole && seg.last >= seg.first && seg.first > above && seg.last <= upto
	})
}

// absence is what the sink missed, nil while it is attached.
func (a *attachment) absence() *absence {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away
}

// handed reports whether the sink may have been handed an entry, or will be.
func (a *attachment) handed(seq uint64) bool {
	away := a.absence()
	return away == nil || seq <= away.handed
}

// detach lets the spool go on without the sink.
func (a *attachment) detach(ctx context.Context) error {
	a.offering.Lock()
	defer a.offering.Unlock()
	acked, _ := a.o.cursor()
	away := &absence{handed: max(a.offered, acked)}
	away.skipped = away.handed
	err := a.o.e.journal.change(ctx, func(tx *tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO detached VALUES (?, ?, ?)", a.o.id, int64(away.handed), int64(away.skipped))
		return err
	})
	if err != nil {
		return fmt.Errorf("detach sink %s: %w", a.o.sink.Name(), err)
	}
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	a.o.e.cfg.Logger.Error("the spool is full and only this sink holds it up: it is detached; its streams are sent to it anew when it is back",
		"sink", a.o.sink.Name(), "handed", away.handed)
	return nil
}

// offer notes that the sink is handed an entry. It reports false when the sink
// was detached before: then the entry is not for it.
func (a *attachment) offer(entry *Stored) (bool, error) {
	a.offering.Lock()
	defer a.offering.Unlock()
	seq := entry.head.seq
	if away := a.absence(); away != nil && seq > away.handed {
		return false, nil
	}
	if len(a.o.e.outlets) < 2 || seq <= a.offered {
		return true, nil
	}
	// Room is noted ahead, a file of the spool at a time: that is also what
	// stays when the sink is detached.
	upto := max(seq, a.o.e.spool.files.end(entry.seg))
	if err := a.o.e.journal.noteOffered(a.o.id, upto); err != nil {
		return false, err
	}
	a.offered = upto
	return true, nil
}

// end is the last visible entry of a segment.
func (s *segments) end(seg *segment) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(seg.last, s.synced)
}

// skip passes entries up to seq over for a detached sink.
func (a *attachment) skip(upto uint64) error {
	a.offering.Lock()
	defer a.offering.Unlock()
	return a.skipLocked(upto)
}

func (a *attachment) skipLocked(upto uint64) error {
	away := a.absence()
	if away == nil || upto <= away.skipped {
		return nil
	}
	missed := map[envelope.Stream]bool{}
	quiet := map[accountKey]*Unit{}
	for entry, err := range a.o.e.spool.Entries(away.skipped) {
		if err != nil {
			return err
		}
		h := &entry.head
		if h.seq > upto {
			break
		}
		if !a.o.mine(entry) || h.unit.Form == FormWatermark {
			continue
		}
		if h.records == 0 {
			if h.unit.Form == FormUnit {
				quiet[accountKey{h.unit.Stream, h.unit.Position.Epoch}] = &h.unit
			}
			continue
		}
		lacks, err := a.dismiss(entry)
		if err != nil {
			return err
		}
		if lacks {
			missed[h.unit.Stream] = true
		}
	}
	err := a.o.e.journal.change(context.Background(), func(tx *tx) error {
		for s := range missed {
			if err := tx.fallBehind(a.o.id, keyOf(s), away.handed); err != nil {
				return err
			}
		}
		if err := tx.passQuiet(a.o.id, quiet); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE detached SET skipped = ? WHERE sink = ?", int64(upto), a.o.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("pass entries over for sink %s: %w", a.o.sink.Name(), err)
	}
	a.mu.Lock()
	a.away = &absence{away.handed, upto}
	if len(missed) > 0 {
		a.fell++
	}
	a.mu.Unlock()
	return nil
}

// dismiss forgets what was under way in an entry that the sink does not get.
// It reports whether the stream lacks something by that: not by a gap of what
// the sink's place refused, which is told again.
func (a *attachment) dismiss(entry *Stored) (lacks bool, err error) {
	h := &entry.head
	if h.unit.Sink != a.o.sink.Name() {
		return true, nil
	}
	if h.gap {
		one, err := reportOf(entry)
		if err != nil {
			return false, err
		}
		a.o.e.reports.lose(one)
		return false, nil
	}
	a.rebased(h)
	return true, nil
}

// attach takes a detached sink back that has everything it was handed. It goes
// on with the entries to come; the streams that fell behind follow as a whole,
// one by one.
func (a *attachment) attach() (uint64, error) {
	a.offering.Lock()
	defer a.offering.Unlock()
	// A watermark that is being spooled for the sink is to be passed over too.
	a.o.posting.Lock()
	defer a.o.posting.Unlock()
	last := a.o.e.spool.Last()
	if err := a.skipLocked(last); err != nil {
		return 0, err
	}
	away := a.absence()
	now, idle := a.o.e.cfg.Now().UnixMilli(), a.o.e.cfg.WatermarkIdle.Milliseconds()
	err := a.o.e.journal.change(context.Background(), func(tx *tx) error {
		if err := tx.unmark(a.o.id, away.handed, now, idle); err != nil {
			return err
		}
		if err := tx.takeQuiet(a.o.id, now, idle); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE sink SET cursor = ?, since = ? WHERE id = ?", int64(last), int64(last), a.o.id); err != nil {
			return err
		}
		_, err := tx.Exec("DELETE FROM detached WHERE sink = ?", a.o.id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("attach sink %s: %w", a.o.sink.Name(), err)
	}
	a.o.trail = nil
	a.o.move(last)
	a.mu.Lock()
	a.away = nil
	a.mu.Unlock()
	a.o.e.cfg.Logger.Info("the sink is back; streams that fell behind are sent to it as a whole", "sink", a.o.sink.Name())
	a.o.e.progress.fire()
	a.o.e.certifier.kick()
	return last, a.o.e.release()
}
