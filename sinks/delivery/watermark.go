package delivery

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"celldexport/envelope"
)

// certifier spools watermarks. At most one of an account is on its way: the
// next is made when it was acknowledged, so that a resend is the same bytes.
type certifier struct {
	mu sync.Mutex
	// rescan is set when the spool may hold watermarks that the journal does
	// not know of.
	rescan bool
	// newest is the last watermark spooled since the start.
	newest uint64
}

// marksAtOnce bounds the watermarks that are made in memory together; they
// share one sync of the spool and one transaction of the journal.
const marksAtOnce = 256

// certify spools the watermarks that are due, with all also those of
// stretches without records, and returns how many.
func (e *Engine) certify(ctx context.Context, all bool) (int, error) {
	e.certifier.mu.Lock()
	defer e.certifier.mu.Unlock()
	if e.certifier.rescan {
		if err := e.findMarks(); err != nil {
			return 0, err
		}
		e.certifier.rescan = false
	}
	n := 0
	for _, o := range e.outlets {
		for {
			marked, err := e.certifySome(ctx, o, all)
			n += marked
			if err != nil {
				return n, err
			}
			if marked == 0 {
				break
			}
		}
	}
	return n, nil
}

func (e *Engine) certifySome(ctx context.Context, o *outlet, all bool) (int, error) {
	o.posting.Lock() // an acknowledgement in between would count into the mark
	defer o.posting.Unlock()
	now := e.cfg.Now().UnixMilli()
	if all {
		now = 0
	}
	due, err := e.journal.due(o.id, now, marksAtOnce)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	e.certifier.rescan = true
	for _, a := range due {
		seq, err := e.spoolMark(a, o.sink.Name())
		if err != nil {
			return 0, fmt.Errorf("spool watermark of %v epoch %d for sink %s: %w", a.stream, a.epoch, o.sink.Name(), err)
		}
		a.spooled(seq)
		e.certifier.newest = seq
	}
	// A crash, or a failure, from here on leaves marks that the journal does
	// not know: findMarks tells it.
	if err := e.spool.Sync(ctx); err != nil {
		return 0, err
	}
	if err := e.journal.change(ctx, func(tx *sql.Tx) error { return storeAll(tx, o.id, due) }); err != nil {
		return 0, err
	}
	e.certifier.rescan = false
	return len(due), nil
}

func storeAll(tx *sql.Tx, sink int64, accounts []*account) error {
	for _, a := range accounts {
		if err := storeAccount(tx, sink, a); err != nil {
			return err
		}
	}
	return nil
}

// newestMark is the entry of the last watermark spooled since the start.
func (e *Engine) newestMark() uint64 {
	e.certifier.mu.Lock()
	defer e.certifier.mu.Unlock()
	return e.certifier.newest
}

func (e *Engine) spoolMark(a *account, sink string) (uint64, error) {
	u, rec, err := a.watermark(sink)
	if err != nil {
		return 0, err
	}
	w, err := e.spool.Begin(u)
	if err != nil {
		return 0, err
	}
	if err := w.Record(&rec); err != nil {
		return 0, err
	}
	return w.Commit()
}

// findMarks tells the journal of the watermarks that the spool holds.
func (e *Engine) findMarks() error {
	after := ^uint64(0)
	for _, o := range e.outlets {
		acked, _ := o.cursor()
		after = min(after, acked)
	}
	for entry, err := range e.spool.Entries(after) {
		if err != nil {
			return err
		}
		if entry.head.unit.Form != FormWatermark {
			continue
		}
		if o := e.outlet(entry.head.unit.Sink); o != nil {
			if err := e.foundMark(o, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) foundMark(o *outlet, entry *Stored) error {
	o.posting.Lock()
	defer o.posting.Unlock()
	if acked, _ := o.cursor(); entry.head.seq <= acked {
		return nil
	}
	a, err := e.journal.account(o.id, entry.head.unit.Stream, entry.head.unit.Position.Epoch)
	if err != nil || a == nil || (a.pending != nil && a.pending.seq == entry.head.seq) {
		return err
	}
	w, err := mark(entry)
	if err != nil {
		return err
	}
	if !a.found(entry.head.seq, w) {
		return nil
	}
	return e.journal.change(context.Background(), func(tx *sql.Tx) error { return storeAccount(tx, o.id, a) })
}

// certifyLoop spools watermarks as they become due, until ctx ends or the
// spool fails.
func (e *Engine) certifyLoop(ctx context.Context) error {
	for {
		_, err := e.certify(ctx, false)
		if ctx.Err() != nil {
			return nil
		}
		if broken := e.spool.Err(); broken != nil {
			return broken
		}
		wait := e.untilDue()
		if err != nil {
			e.cfg.Logger.Error("watermarks cannot be spooled, trying again", "error", err, "in", e.cfg.RestartMin)
			wait = e.cfg.RestartMin
		}
		if !e.idle(ctx, wait, err != nil) {
			return nil
		}
	}
}

// untilDue is how long no watermark will be due.
func (e *Engine) untilDue() time.Duration {
	at, err := e.journal.nextDue()
	if err != nil || at == 0 {
		return e.cfg.WatermarkIdle
	}
	return max(0, time.UnixMilli(at).Sub(e.cfg.Now()))
}

// idle waits for the next pass: until something was acknowledged, but at
// least WatermarkEvery and at most wait. It reports whether to go on.
func (e *Engine) idle(ctx context.Context, wait time.Duration, failed bool) bool {
	least := time.NewTimer(e.cfg.WatermarkEvery)
	defer least.Stop()
	if failed {
		least.Reset(wait)
	}
	select {
	case <-ctx.Done():
		return false
	case <-least.C:
	}
	if failed {
		return true
	}
	timer := time.NewTimer(max(wait, time.Millisecond))
	defer timer.Stop()
	changed := e.spool.changes() // also when the spool fails
	for {
		select {
		case <-ctx.Done():
			return false
		case <-e.wake:
			return true
		case <-timer.C:
			return true
		case <-changed:
			if e.spool.Err() != nil {
				return true
			}
			changed = e.spool.changes()
		}
	}
}

// mark decodes the watermark that an entry carries.
func mark(entry *Stored) (*envelope.Watermark, error) {
	for rec, err := range entry.Records() {
		if err != nil {
			return nil, err
		}
		r, err := rec.Decode()
		if err != nil {
			return nil, err
		}
		if w, ok := r.Body.(*envelope.Watermark); ok {
			return w, nil
		}
	}
	return nil, entry.broken(fmt.Errorf("no watermark in it"))
}
