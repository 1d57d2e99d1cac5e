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
	"syscall"

	"golang.org/x/sync/errgroup"

	"celldexport/internal/celld"
	"celldexport/ltxtail/proof"
)

// parallelProofs is how many cells the bucket is asked about at once.
const parallelProofs = 8

// rounds decide what is worked on and when. They hold the lock of turns while
// they do.
type rounds struct {
	*kit
	turns       *turns
	prover      *proof.Prover
	node        *node
	residencies *residencies
	agenda      *agenda
	before      *before
	journal     *journal
	shadows     *shadows
	// streams are those in memory, by scope; idle are the others.
	streams map[string]*stream
	idle    idlers
}

// agenda says when a stream is looked at again.
type agenda struct {
	*kit
	// n is the number of the round.
	n uint64
	// changed are the cells that changed on disk and were not looked at yet.
	changed map[string]struct{}
	// waiting are the streams that a later round looks at whatever happens.
	waiting map[string]*stream
	// hurry is set for the rounds of a stop.
	hurry *hurry
}

// all reports whether the round looks at streams before they are due.
func (ag *agenda) all() bool { return ag.hurry != nil && ag.hurry.all }

// exam is a stream's proof in one round.
type exam struct {
	s    *stream
	view view
	res  proof.Result
	err  error
	// away says that the stream was left behind while it was asked about: what
	// follows is done, or was.
	away bool
}

// round works on every cell that has something to do: proves in parallel,
// exports one after the other, commits. What waits for the bucket or the
// node's disk for long is left behind meanwhile. A round without such a cell makes no
// request. The error is one that concerns all streams.
func (rd *rounds) round(ctx context.Context) error {
	rd.agenda.n++
	if err := rd.turns.failed(); err != nil {
		return err
	}
	common := rd.turns.common(ctx)
	if err := rd.before.settle(common); err != nil {
		return err
	}
	exams, err := rd.dueExams(ctx)
	if err != nil {
		return err
	}
	if len(exams) == 0 {
		return rd.finish(ctx)
	}
	if err := rd.prover.Control(common); err != nil {
		rd.requeue(ctx, exams, err)
		return err
	}
	if err := rd.node.check(common); err != nil {
		rd.requeue(ctx, exams, err)
		return err
	}
	if err := rd.take(ctx, exams); err != nil {
		return err
	}
	return rd.finish(ctx)
}

// take proves the exams and works on what is proven, as far as the time goes.
func (rd *rounds) take(ctx context.Context, exams []*exam) error {
	for len(exams) > 0 {
		n, asks := rd.agenda.together(len(exams))
		rd.prove(ctx, exams[:n], asks)
		for i, x := range exams[:n] {
			if x.away {
				continue
			}
			if ctx.Err() != nil {
				rd.requeue(ctx, exams[i:], nil)
				return nil
			}
			if _, err := rd.turns.give(ctx, x.s, func(ctx context.Context) error { return rd.work(ctx, x) }); err != nil {
				return err
			}
			if err := rd.journal.commitIfLarge(ctx); err != nil {
				rd.requeue(ctx, exams[i+1:], err)
				return err
			}
		}
		exams = exams[n:]
	}
	return nil
}

// finish makes durable what the round did and lets go of what it needs no
// more.
func (rd *rounds) finish(ctx context.Context) error {
	if err := rd.journal.commit(ctx); err != nil {
		return err
	}
	if err := rd.trimShadows(ctx); err != nil {
		return err
	}
	rd.retire()
	return nil
}

// dueExams collects the cells that changed on disk and those whose back-off
// ran out.
func (rd *rounds) dueExams(ctx context.Context) ([]*exam, error) {
	for _, scope := range rd.tail.Dirty() {
		rd.agenda.changed[scope] = struct{}{}
	}
	due := maps.Clone(rd.agenda.changed)
	for scope, s := range rd.agenda.waiting {
		if s.wait.due <= rd.agenda.n || rd.agenda.all() {
			due[scope] = struct{}{}
		}
	}
	var exams []*exam
	for _, scope := range slices.Sorted(maps.Keys(due)) {
		s, err := rd.stream(ctx, scope)
		if err != nil {
			return nil, err
		}
		if s == nil || s.turn != nil || s.wait.due > rd.agenda.n && !rd.agenda.all() {
			continue
		}
		if r := s.doc.Residency; r.Based {
			// What an earlier start exported is not pending.
			rd.tail.Advance(scope, r.Epoch, r.Spooled)
		}
		v, ok := s.look(rd.tail.Cell(scope))
		if !ok {
			rd.agenda.rest(s)
			continue
		}
		if s.left == v.disk.Epoch {
			rd.before.pass(s, v)
			continue
		}
		s.left = 0
		exams = append(exams, &exam{s: s, view: v})
	}
	maps.DeleteFunc(rd.agenda.changed, func(scope string, _ struct{}) bool {
		s := rd.streams[scope]
		return s == nil || s.turn == nil // else it is still to be looked at
	})
	// Room in the spool goes to whoever had none for longest.
	slices.SortStableFunc(exams, func(a, b *exam) int { return cmp.Compare(a.s.served, b.s.served) })
	if rd.agenda.hurry != nil {
		slices.SortStableFunc(exams, oldestFirst)
	}
	return exams, nil
}

// stream returns the stream of a cell directory, nil when its class is not
// exported.
func (rd *rounds) stream(ctx context.Context, scope string) (*stream, error) {
	if s := rd.streams[scope]; s != nil {
		return s, nil
	}
	sc, err := celld.ParseScope(scope)
	if err != nil || !rd.exports(sc.Class()) {
		return nil, nil
	}
	doc, err := rd.dir.Load(ctx, scope)
	if err != nil {
		return nil, err
	}
	s := newStream(sc, doc)
	switch {
	case rd.idle.wake(scope, s):
	case doc != nil && doc.Residency.Closed:
		s.status.set(rd.now(), StateEnded, "")
	default:
		s.status.set(rd.now(), StatePending, "not looked at yet")
	}
	rd.streams[scope] = s
	return s, nil
}

// exports reports whether cells of a class are exported.
func (rd *rounds) exports(class string) bool {
	if celld.NeverExported(class) {
		return false
	}
	if allow := rd.settings.Export.Classes; len(allow) > 0 {
		return slices.Contains(allow, class)
	}
	return celld.DefaultClass(class)
}

// prove asks the bucket about the exams, so many at once. Those that are not
// answered in time are left behind.
func (rd *rounds) prove(ctx context.Context, exams []*exam, asks int) {
	hurry, listed := rd.agenda.hurry, rd.before.epochs
	var g errgroup.Group
	g.SetLimit(asks)
	rd.turns.mu.Unlock()
	for _, x := range exams {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil // nor is it worked on
			}
			ask := func(ctx context.Context) {
				own, cancel := hurry.share(ctx)
				defer cancel()
				rd.examine(own, x, listed)
			}
			x.away = !rd.turns.prove(ctx, x.s, ask, func(ctx context.Context) error { return rd.workLate(ctx, x) })
			return nil
		})
	}
	_ = g.Wait() // every exam carries its own error
	rd.turns.mu.Lock()
}

// examine asks the bucket about one stream. Of a residency that is left to an
// exporter before us, by the list of those, it asks only whether the cell is
// still ours.
func (rd *rounds) examine(ctx context.Context, x *exam, listed map[string]uint64) {
	defer rd.pulse.beat()
	if x.view.left, x.err = rd.before.left(ctx, x.s, x.view, listed); x.err != nil {
		return
	}
	if x.view.left {
		x.res.Own, x.res.Verdict, x.err = rd.prover.ReadOwn(ctx, x.s.scope.Cell, x.view.disk.Epoch)
		return
	}
	x.res, x.err = rd.prover.Prove(ctx, x.view.target)
}

// requeue has the exams looked at again in the next round: something that
// concerns all streams came in between. An error becomes the state of those
// that have no trouble of their own; the round's log names it once for all.
func (rd *rounds) requeue(ctx context.Context, exams []*exam, err error) {
	for _, x := range exams {
		s := x.s
		if s.turn != nil {
			continue
		}
		s.wait.due = rd.agenda.n + 1
		rd.agenda.waiting[s.doc.Scope] = s
		if err == nil || ctx.Err() != nil {
			continue
		}
		if s.status.settled() || s.status.State == StatePending || strings.HasPrefix(s.status.Reason, allWait) {
			s.status.set(rd.now(), StateWaiting, allWait+err.Error())
		}
	}
}

// allWait begins the reason of a stream that waits because all do.
const allWait = "no stream goes on: "

// work takes one stream as far as its proof allows. Whatever goes wrong with
// the stream becomes its status; only a failure of our own state is returned.
func (rd *rounds) work(ctx context.Context, x *exam) error {
	s := x.s
	ctx, cancel := rd.agenda.hurry.share(ctx)
	defer cancel()
	defer rd.pulse.beat()
	err := x.err
	if err == nil {
		before := s.doc.Residency
		err = rd.residencies.advance(ctx, s, x.view, x.res)
		if now := s.doc.Residency; now.Epoch != before.Epoch || now.Spooled != before.Spooled {
			s.served = rd.agenda.n
		}
	}
	var own *stateError
	switch {
	case errors.As(err, &own):
		return rd.journal.fail(err)
	case errors.Is(err, context.Canceled):
		rd.agenda.later(s)
		return nil
	case rd.agenda.hurry != nil && errors.Is(err, context.DeadlineExceeded):
		s.status.set(rd.now(), StatePending, fmt.Sprintf("there was no time left for it: %v", err))
		rd.agenda.later(s)
		return nil
	case err != nil:
		rd.note(s, err)
		rd.agenda.later(s)
		if s.status.State == StateFull {
			// Room comes back at any time, and asking for it costs nothing.
			s.wait = backoff{due: rd.agenda.n + 1}
		}
	}
	return nil
}

// workLate is work on a proof that came after its round. Until then another
// exporter may have taken the node, which no round had to notice.
func (rd *rounds) workLate(ctx context.Context, x *exam) error {
	if err := rd.node.still(ctx); errors.Is(err, errNodeTaken) {
		return err
	} else if x.err == nil {
		x.err = err
	}
	return rd.work(ctx, x)
}

// note turns an error of one stream into its status and logs it once.
func (rd *rounds) note(s *stream, err error) {
	st := StateFailed
	var w *waitError
	if errors.As(err, &w) {
		st = w.state
	}
	if s.status.State != st || s.status.Reason != err.Error() {
		level := slog.LevelWarn
		if st == StatePending {
			level = slog.LevelInfo
		}
		rd.log.Log(context.Background(), level, "stream does not go on", "cell", s.doc.Scope, "epoch", s.doc.Residency.Epoch, "state", string(st), "err", err)
	}
	s.status.set(rd.now(), st, err.Error())
	s.whole = true
	// What the ledger says may be why: read it again next time.
	s.led, s.plan = nil, nil
}

// later has the stream looked at again after its back-off.
func (ag *agenda) later(s *stream) {
	s.wait.again(ag.n)
	ag.waiting[s.doc.Scope] = s
}

// rest takes the stream off the list of those that wait for a round.
func (ag *agenda) rest(s *stream) {
	s.wait.reset()
	delete(ag.waiting, s.doc.Scope)
	if !s.status.settled() {
		s.status.set(ag.now(), StateExported, "")
	}
}

// waitError is a stream's error that passes when something else changes.
type waitError struct {
	state State
	err   error
}

func (w *waitError) Error() string { return w.err.Error() }
func (w *waitError) Unwrap() error { return w.err }

func waiting(st State, format string, args ...any) error {
	return &waitError{state: st, err: fmt.Errorf(format, args...)}
}

// stateError is a failure of the state directory: nothing can be exported
// until it is mended, and a restart takes up from what is durable. stateFailed
// makes one, but for a want of file descriptors: that holds up what needs one,
// and passes by itself.
type stateError struct{ err error }

func (w *stateError) Error() string { return w.err.Error() }
func (w *stateError) Unwrap() error { return w.err }

func stateFailed(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err // told to stop: nothing failed
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		// Nothing was written, and descriptors come back.
		return waiting(StateWaiting, "no file descriptor is free: %w", err)
	}
	return &stateError{err}
}

// cutShort is stateFailed where the step cannot be tried again, because a part
// of it is spooled: only a restart takes up from there.
func cutShort(err error) error {
	if err = stateFailed(err); err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &stateError{err}
}

// lookAgain has every stream whose residency is not closed looked at in the
// first round, with a listing: whatever happened to it while nobody looked.
func (rd *rounds) lookAgain(ctx context.Context) error {
	scopes, err := rd.dir.Open(ctx)
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		s, err := rd.stream(ctx, scope)
		if err != nil {
			return err
		}
		if s != nil {
			rd.agenda.waiting[scope] = s
		}
	}
	return nil
}

// release closes the shadows of all streams.
func (rd *rounds) release() error {
	var errs []error
	rd.turns.mu.Lock()
	defer rd.turns.mu.Unlock()
	for _, s := range rd.streams {
		if s.shadow == nil {
			continue
		}
		if len(rd.journal.batch.streams) == 0 {
			rd.shadows.keepOwners(s)
		}
		errs = append(errs, s.shadow.Close())
	}
	return errors.Join(errs...)
}
