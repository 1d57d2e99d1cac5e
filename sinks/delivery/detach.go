package delivery

import (
	"context"
	"fmt"

	"celldexport/envelope"
)

// MakeRoom detaches sinks that hold up a full spool: those that have not
// acknowledged everything in it while another sink has. What a sink was handed
// stays for it; what comes behind is passed over, and its streams fall behind.
// It reports whether there may be room now.
func (e *Engine) MakeRoom(ctx context.Context) (bool, error) {
	_, written := e.spool.files.usage()
	var late []*outlet
	whole := false
	for _, o := range e.outlets {
		switch acked, _ := o.cursor(); {
		case o.absence() != nil:
		case acked >= written:
			whole = true
		default:
			late = append(late, o)
		}
	}
	if !whole || len(late) == 0 {
		return false, nil
	}
	for _, o := range late {
		if err := o.detach(ctx); err != nil {
			return false, err
		}
	}
	return true, e.release()
}

// absence is what the sink missed, nil while it is attached.
func (o *outlet) absence() *absence {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away
}

// detach lets the spool go on without the sink.
func (o *outlet) detach(ctx context.Context) error {
	o.offering.Lock()
	defer o.offering.Unlock()
	acked, _ := o.cursor()
	away := &absence{handed: max(o.offered, acked)}
	away.skipped = away.handed
	err := o.e.journal.change(ctx, func(tx *tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO detached VALUES (?, ?, ?)", o.id, int64(away.handed), int64(away.skipped))
		return err
	})
	if err != nil {
		return fmt.Errorf("detach sink %s: %w", o.sink.Name(), err)
	}
	o.mu.Lock()
	o.away = away
	o.mu.Unlock()
	o.e.cfg.Logger.Error("the spool is full and only this sink holds it up: it is detached; its streams are sent to it anew when it is back",
		"sink", o.sink.Name(), "handed", away.handed)
	return nil
}

// offer notes that the sink is handed an entry. It reports false when the sink
// was detached before: then the entry is not for it.
func (o *outlet) offer(entry *Stored) (bool, error) {
	o.offering.Lock()
	defer o.offering.Unlock()
	seq := entry.head.seq
	if away := o.absence(); away != nil && seq > away.handed {
		return false, nil
	}
	if len(o.e.outlets) < 2 || seq <= o.offered {
		return true, nil
	}
	// Room is noted ahead, a file of the spool at a time: that is also what
	// stays when the sink is detached.
	upto := max(seq, o.e.spool.files.end(entry.seg))
	if err := o.e.journal.noteOffered(o.id, upto); err != nil {
		return false, err
	}
	o.offered = upto
	return true, nil
}

// end is the last visible entry of a segment.
func (s *segments) end(seg *segment) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(seg.last, s.synced)
}

// skip passes entries up to seq over for a detached sink.
func (o *outlet) skip(upto uint64) error {
	o.offering.Lock()
	defer o.offering.Unlock()
	return o.skipLocked(upto)
}

func (o *outlet) skipLocked(upto uint64) error {
	away := o.absence()
	if away == nil || upto <= away.skipped {
		return nil
	}
	missed := map[envelope.Stream]bool{}
	for entry, err := range o.e.spool.Entries(away.skipped) {
		if err != nil {
			return err
		}
		h := &entry.head
		if h.seq > upto {
			break
		}
		if !o.mine(entry) || h.unit.Form == FormWatermark || h.records == 0 {
			continue
		}
		missed[h.unit.Stream] = true
		o.dismiss(h)
	}
	err := o.e.journal.change(context.Background(), func(tx *tx) error {
		for s := range missed {
			if err := tx.fallBehind(o.id, keyOf(s), away.handed); err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE detached SET skipped = ? WHERE sink = ?", int64(upto), o.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("pass entries over for sink %s: %w", o.sink.Name(), err)
	}
	o.mu.Lock()
	o.away = &absence{away.handed, upto}
	if len(missed) > 0 {
		o.fell++
	}
	o.mu.Unlock()
	return nil
}

// dismiss forgets what was under way in an entry that the sink does not get.
func (o *outlet) dismiss(h *head) {
	if h.unit.Sink != o.sink.Name() {
		return
	}
	if h.gap {
		o.e.reports.forget(reportKey{o.sink.Name(), accountKey{h.unit.Stream, h.unit.Position.Epoch}})
	}
	o.rebased(h)
}

// attach takes a detached sink back that has everything it was handed. It goes
// on with the entries to come; the streams that fell behind follow as a whole,
// one by one.
func (o *outlet) attach() (uint64, error) {
	o.offering.Lock()
	defer o.offering.Unlock()
	last := o.e.spool.Last()
	if err := o.skipLocked(last); err != nil {
		return 0, err
	}
	away := o.absence()
	o.posting.Lock()
	defer o.posting.Unlock()
	now, idle := o.e.cfg.Now().UnixMilli(), o.e.cfg.WatermarkIdle.Milliseconds()
	err := o.e.journal.change(context.Background(), func(tx *tx) error {
		if err := tx.unmark(o.id, away.handed, now, idle); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE sink SET cursor = ?, since = ? WHERE id = ?", int64(last), int64(last), o.id); err != nil {
			return err
		}
		_, err := tx.Exec("DELETE FROM detached WHERE sink = ?", o.id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("attach sink %s: %w", o.sink.Name(), err)
	}
	o.trail = nil
	o.mu.Lock()
	o.away, o.since = nil, last
	o.acked, o.saved = max(o.acked, last), max(o.saved, last)
	o.done = o.e.spool.files.seen()
	o.mu.Unlock()
	o.e.cfg.Logger.Info("the sink is back; streams that fell behind are sent to it as a whole", "sink", o.sink.Name())
	o.e.progress.fire()
	o.e.certifier.kick()
	return last, o.e.release()
}
