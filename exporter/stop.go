package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"celldexport/ltxtail"
)

// ShutdownTime bounds the end of Run. A quarter of it is for the last walk,
// half of it for walk and rounds, nine tenths for all of that and the sinks;
// the rest is for files to be closed.
const ShutdownTime = 20 * time.Second

// maxNamed bounds the streams that a stop names in the log.
const maxNamed = 20

// ending is the end of a run: the last look at the directory and what that
// leaves, which belong to the goroutine of the rounds, and the last delivery.
type ending struct{ *Exporter }

// hurry is how rounds go about a stop: no stream waits for its back-off, those
// that wait longest come first, and one that does not answer takes only its
// share of the time.
type hurry struct {
	// all has every stream looked at that has something pending.
	all bool
	// each bounds the proof of one stream, and then the work on it.
	each time.Duration
}

const (
	// hurriedProofs are made before the first stream is worked on when time is
	// short, hurriedAsks of them at once: cells that do not answer must not
	// keep the others from being asked about.
	hurriedProofs = 64
	hurriedAsks   = 32
)

// share is the time that one stream may take.
func (h *hurry) share(ctx context.Context) (context.Context, context.CancelFunc) {
	if h == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, h.each)
}

// together is how many of so many streams are proven before they are worked
// on, and how many of them at once.
func (ag *agenda) together(n int) (proofs, asks int) {
	if ag.hurry == nil {
		return n, parallelProofs
	}
	return min(n, hurriedProofs), hurriedAsks
}

// finish waits for the reading to end once ctx did, then has the sinks send
// what is spooled. Reading that does not come back hangs in a call that
// nothing can end: it is left behind with all that it may be using.
func (en ending) finish(ctx context.Context, read <-chan error) error {
	over, err := false, error(nil)
	select {
	case err = <-read:
		over = true
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), en.shutdown*9/10)
	defer cancel()
	if !over {
		over, err = await(read, en.shutdown*3/5)
	}
	if !over {
		en.log.Error("a disk does not answer: what the watch directory holds and was not read goes out at the next start", en.lastSeen()...)
		en.tellUndelivered(en.delivery.Flush(last))
		select {
		case err = <-read:
		case <-last.Done():
			en.stuck = read
			return nil
		}
	}
	if err == nil {
		en.tellUndelivered(en.deliver(last))
	}
	return err
}

// await waits for the end of the reading, but not for longer than so long.
func await(read <-chan error, most time.Duration) (over bool, err error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case err = <-read:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

// look takes the directory up once more, exports what can be proven, and says
// what is left. The error is one that ends the process with a failure.
func (en ending) look(ctx context.Context) error {
	begun := time.Now()
	silent := !en.gather()
	walk, cancel := context.WithTimeout(ctx, en.shutdown/4)
	err := en.tail.Scan(walk)
	cancel()
	switch {
	case errors.Is(err, ltxtail.ErrSilent):
		en.log.Error("the watch directory does not answer: what it holds and was not read goes out at the next start", append(en.lastSeen(), "err", err)...)
	case err != nil:
		en.log.Warn("last walk of the watch directory", "err", err)
	}
	rounds, cancel := context.WithDeadline(ctx, begun.Add(en.shutdown/2))
	err = en.lastRounds(rounds, silent)
	cancel()
	if !silent {
		en.gather()
	}
	if errors.Is(err, errNodeTaken) {
		return err
	}
	left, lost := en.leftovers(ctx)
	if err = errors.Join(err, lost); err != nil {
		en.log.Error("the last round could not do all of its work", "err", err)
	}
	en.tellLeft(left)
	en.tellLacking()
	return en.checkpoint(ctx)
}

// gather waits for the streams that were left behind, whose context is done.
// One that does not end even so hangs in a call to the node's disk: then it
// reports false.
func (en ending) gather() bool {
	ts, most := en.rounds.turns, min(tailTime, en.shutdown/20)
	// The second time is for one that was in the middle of a unit.
	if ts.gather(most) || ts.gather(most) {
		return true
	}
	en.log.Error("a file of the watch directory does not answer: its stream goes on at the next start")
	return false
}

// lastRounds export everything that can be proven now. The first looks at all
// that is pending, the others go on with what takes more than one. Sinks are
// not sent more streams that they lack: that is begun at the next start. silent
// says that some streams do not come back.
func (en ending) lastRounds(ctx context.Context, silent bool) (err error) {
	if walked, _ := en.tail.Walked(); !walked || en.report.failed() != "" {
		en.publish(nil)
		return nil
	}
	for all := true; ; all = false {
		each := en.shutdown / 10
		err = en.lastRound(ctx, &hurry{all: all, each: each})
		if err == nil && !silent {
			// Those that were left behind come back with their share of time.
			silent = !en.rounds.turns.gather(each + tailTime)
		}
		if err != nil || ctx.Err() != nil || !en.moved() {
			break
		}
	}
	var own *stateError
	if errors.As(err, &own) {
		en.fail(err)
	}
	en.publish(err)
	return err
}

// lastRound is one of them.
func (en ending) lastRound(ctx context.Context, h *hurry) error {
	en.rounds.turns.mu.Lock()
	defer en.rounds.turns.mu.Unlock()
	en.rounds.agenda.hurry = h
	if err := en.refusals.report(ctx); err != nil {
		return err
	}
	return en.rounds.round(ctx)
}

// moved reports whether the last round spooled something of a stream that has
// more.
func (en ending) moved() bool {
	en.rounds.turns.mu.Lock()
	defer en.rounds.turns.mu.Unlock()
	for _, s := range en.rounds.streams {
		if s.served == en.rounds.agenda.n && !s.status.settled() && s.turn == nil {
			return true
		}
	}
	return false
}

// leftover is a stream that is not done, and what is known to be left of it.
type leftover struct {
	cell  string
	epoch uint64
	// units are the files that wait on the node's disk.
	units  int
	status Status
	// passed says that the stream waits for the cell's next activation, not
	// for us.
	passed bool
}

// leftovers are the streams that are not done, by name. Those that the last
// round did not come to are among them whatever their state says.
func (en ending) leftovers(ctx context.Context) ([]leftover, error) {
	rd := en.rounds
	rd.turns.mu.Lock()
	defer rd.turns.mu.Unlock()
	for _, scope := range rd.tail.Dirty() {
		rd.agenda.changed[scope] = struct{}{}
	}
	scopes := maps.Clone(rd.agenda.changed)
	for scope := range rd.agenda.waiting {
		scopes[scope] = struct{}{}
	}
	for scope, s := range rd.streams {
		if !s.account().settled() {
			scopes[scope] = struct{}{}
		}
	}
	var left []leftover
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		s, err := rd.stream(ctx, scope)
		if err != nil {
			return left, err
		}
		if s == nil {
			continue
		}
		v, pending := s.look(rd.tail.Cell(scope))
		l := leftover{cell: scope, epoch: v.disk.Epoch, units: len(v.target.Local), status: s.account(), passed: s.left != 0 && s.left == v.disk.Epoch}
		switch {
		case l.status.settled() && (!pending || l.passed):
			continue
		case l.status.settled():
			l.status.set(rd.now(), StatePending, "no round came to it any more")
		}
		left = append(left, l)
	}
	return left, nil
}

// tellLeft logs what is left, the oldest first: all of it in numbers, some of
// it by name.
func (en ending) tellLeft(left []leftover) {
	left = slices.DeleteFunc(left, func(l leftover) bool { return l.passed })
	if len(left) == 0 {
		return
	}
	slices.SortStableFunc(left, func(a, b leftover) int { return a.status.Since.Compare(b.status.Since) })
	units, states := 0, make(map[State]int)
	for _, l := range left {
		units += l.units
		states[l.status.State]++
	}
	en.log.Warn("streams are left; they go on at the next start", "streams", len(left), "units", units, byState(states))
	for _, l := range left[:min(len(left), maxNamed)] {
		en.log.Warn("stream is left", "cell", l.cell, "epoch", l.epoch, "units", l.units, "state", string(l.status.State), "reason", l.status.Reason)
	}
	if more := len(left) - maxNamed; more > 0 {
		en.log.Warn("more streams are left than are named", "streams", more)
	}
}

func byState(states map[State]int) slog.Attr {
	attrs := make([]any, 0, len(states))
	for _, st := range slices.Sorted(maps.Keys(states)) {
		attrs = append(attrs, slog.Int(string(st), states[st]))
	}
	return slog.Group("states", attrs...)
}

// lastSeen is what the rounds said last of themselves, for when they cannot be
// asked.
func (en ending) lastSeen() []any {
	en.report.mu.Lock()
	defer en.report.mu.Unlock()
	return []any{"units", en.report.status.Watch.Pending, byState(en.report.status.Streams)}
}

// tellLacking says which sinks lack streams that are not on their way.
func (en ending) tellLacking() {
	lagging, err := en.delivery.Lagging()
	if err != nil || len(lagging) == 0 {
		return // a failing state directory says so with the checkpoint
	}
	en.log.Info("sinks lack streams; sending them whole goes on at the next start", "sinks", slices.Sorted(maps.Keys(lagging)))
}

// tellUndelivered logs what the sinks lack of the spool.
func (en ending) tellUndelivered(err error) {
	if err == nil {
		return
	}
	bytes, entries := en.spool.Usage()
	en.log.Warn("not everything was delivered; it goes out at the next start", "err", err, "entries", entries, "bytes", bytes)
}

// unfinished are the streams that have something left to do.
func (en ending) unfinished(ctx context.Context) ([]Pending, error) {
	left, err := en.leftovers(ctx)
	pending := make([]Pending, 0, len(left))
	for _, l := range left {
		pending = append(pending, Pending{Cell: l.cell, Reason: fmt.Sprintf("%s: %s", l.status.State, l.status.Reason)})
	}
	slices.SortFunc(pending, func(a, b Pending) int { return strings.Compare(a.Cell, b.Cell) })
	return pending, err
}

// oldestFirst orders the exams of a stop: what waits longest comes first, then
// what changed just now.
func oldestFirst(a, b *exam) int {
	if as, bs := a.s.status.settled(), b.s.status.settled(); as || bs {
		switch {
		case !as:
			return -1
		case !bs:
			return 1
		}
		return cmp.Compare(a.s.served, b.s.served)
	}
	return a.s.status.Since.Compare(b.s.status.Since)
}
