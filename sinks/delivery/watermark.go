package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"celldexport/envelope"
)

// certifier spools watermarks. At most one of an account is on its way: the
// next is made when it was acknowledged, so that a resend is the same bytes.
type certifier struct {
	e    *Engine
	wake chan struct{}

	mu sync.Mutex
	// rescan is set when the spool may hold watermarks that the journal does
	// not know of.
	rescan bool
	// newest is the last watermark spooled since the start.
	newest uint64
}

func newCertifier(e *Engine) *certifier {
	return &certifier{e: e, wake: make(chan struct{}, 1)}
}

// kick makes run look for what is due.
func (c *certifier) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// marksAtOnce bounds the watermarks that are made in memory together; they
// share one sync of the spool and one transaction of the journal.
const marksAtOnce = 256

// certifying is which watermarks are spooled: those that are due, or all that
// there is anything for, also of stretches without records, but for those that
// were refused in an entry above refusedTo.
type certifying struct {
	all       bool
	refusedTo uint64
}

// certify spools watermarks and returns how many.
func (c *certifier) certify(ctx context.Context, which certifying) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rescan {
		if err := c.e.spool.Sync(ctx); err != nil {
			return 0, err
		}
		if err := c.find(); err != nil {
			return 0, err
		}
		c.rescan = false
	}
	n := 0
	for _, o := range c.e.outlets {
		for {
			marked, err := c.some(ctx, o, which)
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

// some spools up to marksAtOnce watermarks that are due for a sink.
func (c *certifier) some(ctx context.Context, o *outlet, which certifying) (int, error) {
	o.posting.Lock() // an acknowledgement in between would count into the mark
	defer o.posting.Unlock()
	if o.place.absence() != nil {
		return 0, nil // it would be passed over
	}
	now := c.e.cfg.Now().UnixMilli()
	var not map[accountKey]bool
	if which.all {
		now, not = 0, c.e.spurned.again(o.sink.Name(), which.refusedTo)
	}
	due, err := c.e.journal.due(o.id, now, c.e.cfg.WatermarkIdle.Milliseconds(), marksAtOnce+len(not))
	if err != nil {
		return 0, err
	}
	due = slices.DeleteFunc(due, func(a *account) bool { return not[accountKey{a.stream, a.epoch}] })
	if len(due) == 0 {
		return 0, nil
	}
	c.rescan = true
	for _, a := range due {
		seq, err := c.spool(a, o.sink.Name())
		if err != nil {
			return 0, fmt.Errorf("spool watermark of %v epoch %d for sink %s: %w", a.stream, a.epoch, o.sink.Name(), err)
		}
		a.spooled(seq)
		c.newest = seq
	}
	// A crash, or a failure, from here on leaves marks that the journal does
	// not know: find tells it.
	if err := c.e.spool.Sync(ctx); err != nil {
		return 0, err
	}
	if err := c.e.journal.change(ctx, func(tx *tx) error { return storeAll(tx, o.id, due) }); err != nil {
		return 0, err
	}
	c.rescan = false
	return len(due), nil
}

func storeAll(tx *tx, sink int64, accounts []*account) error {
	for _, a := range accounts {
		if err := tx.store(sink, a); err != nil {
			return err
		}
	}
	return nil
}

// last is the entry of the last watermark spooled since the start.
func (c *certifier) last() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

func (c *certifier) spool(a *account, sink string) (uint64, error) {
	u, rec, err := a.watermark(sink)
	if err != nil {
		return 0, err
	}
	w, err := c.e.spool.Begin(u)
	if err != nil {
		return 0, err
	}
	if err := w.Record(&rec); err != nil {
		return 0, err
	}
	return w.Commit()
}

// find tells the journal of the watermarks that the spool holds.
func (c *certifier) find() error {
	after := ^uint64(0)
	for _, o := range c.e.outlets {
		acked, _ := o.cursor()
		after = min(after, acked)
	}
	for entry, err := range c.e.spool.Entries(after) {
		if err != nil {
			return err
		}
		if entry.head.unit.Form != FormWatermark {
			continue
		}
		if o := c.e.outlet(entry.head.unit.Sink); o != nil {
			if err := c.found(o, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *certifier) found(o *outlet, entry *Stored) error {
	o.posting.Lock()
	defer o.posting.Unlock()
	if acked, _ := o.cursor(); entry.head.seq <= acked {
		return nil
	}
	a, err := c.e.journal.account(o.id, entry.head.unit.Stream, entry.head.unit.Position.Epoch)
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
	return c.e.journal.change(context.Background(), func(tx *tx) error { return tx.store(o.id, a) })
}

// run spools watermarks as they become due, until ctx ends or the
// spool fails.
func (c *certifier) run(ctx context.Context) error {
	said := "" // once, however often it is tried
	for {
		_, err := c.certify(ctx, certifying{})
		if ctx.Err() != nil {
			return nil
		}
		if broken := c.e.spool.Err(); broken != nil {
			c.e.cfg.Failed(broken)
			return broken
		}
		wait := c.untilDue()
		if err != nil {
			c.e.cfg.Failed(err)
			if text := err.Error(); text != said {
				said = text
				c.e.cfg.Logger.Error("watermarks cannot be spooled, trying again", "error", err, "in", c.e.cfg.RestartMin)
			}
			wait = c.e.cfg.RestartMin
		} else {
			said = ""
		}
		if !c.idle(ctx, wait, err != nil) {
			return nil
		}
	}
}

// untilDue is how long no watermark will be due. One that is due for a sink
// that is away waits for its return, which kicks.
func (c *certifier) untilDue() time.Duration {
	wait := c.e.cfg.WatermarkIdle
	for _, o := range c.e.outlets {
		if o.place.absence() != nil {
			continue
		}
		if at, err := c.e.journal.nextDue(o.id); err == nil && at != 0 {
			wait = min(wait, max(0, time.UnixMilli(at).Sub(c.e.cfg.Now())))
		}
	}
	return wait
}

// idle waits for the next pass: until something was acknowledged, but at
// least WatermarkEvery and at most wait. It reports whether to go on.
func (c *certifier) idle(ctx context.Context, wait time.Duration, failed bool) bool {
	least := time.NewTimer(c.e.cfg.WatermarkEvery)
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
	changed := c.e.spool.files.changes() // also when the spool fails
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.wake:
			return true
		case <-timer.C:
			return true
		case <-changed:
			if c.e.spool.Err() != nil {
				return true
			}
			changed = c.e.spool.files.changes()
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
