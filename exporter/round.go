package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"celldexport/internal/celld"
	"celldexport/ltxtail/proof"
)

// parallelProofs is how many cells the bucket is asked about at once.
const parallelProofs = 8

// exam is a stream's proof in one round.
type exam struct {
	s    *stream
	view view
	res  proof.Result
	err  error
}

// round works on every cell that has something to do: proves in parallel,
// exports one after the other, commits. A round without such a cell makes no
// request. The error is one that concerns all streams.
func (e *Exporter) round(ctx context.Context) error {
	e.rounds.n++
	exams, err := e.dueExams(ctx)
	if err != nil {
		return err
	}
	if len(exams) == 0 {
		return e.commit(ctx)
	}
	if err := e.prover.Control(ctx); err != nil {
		e.requeue(exams)
		return err
	}
	if err := e.node.check(ctx); err != nil {
		e.requeue(exams)
		return err
	}
	e.prove(ctx, exams)
	for _, x := range exams {
		if err := ctx.Err(); err != nil {
			e.requeue(exams)
			break
		}
		if err := e.work(ctx, x); err != nil {
			return err
		}
		if err := e.commitIfLarge(ctx); err != nil {
			return err
		}
	}
	if err := e.commit(ctx); err != nil {
		return err
	}
	return e.trimShadows(ctx)
}

// dueExams collects the cells that changed on disk and those whose back-off
// ran out.
func (e *Exporter) dueExams(ctx context.Context) ([]*exam, error) {
	due := make(map[string]struct{})
	for _, scope := range e.tail.Dirty() {
		due[scope] = struct{}{}
	}
	for scope, s := range e.waiting {
		if s.wait.due <= e.rounds.n {
			due[scope] = struct{}{}
		}
	}
	var exams []*exam
	for _, scope := range slices.Sorted(maps.Keys(due)) {
		s, err := e.stream(ctx, scope)
		if err != nil {
			return nil, err
		}
		if s == nil || s.wait.due > e.rounds.n {
			continue
		}
		v, ok := s.look(e.tail.Cell(scope))
		if !ok {
			e.rest(s)
			continue
		}
		exams = append(exams, &exam{s: s, view: v})
	}
	return exams, nil
}

// stream returns the stream of a cell directory, nil when its class is not
// exported.
func (e *Exporter) stream(ctx context.Context, scope string) (*stream, error) {
	if s := e.streams[scope]; s != nil {
		return s, nil
	}
	sc, err := celld.ParseScope(scope)
	if err != nil || !e.exports(sc.Class()) {
		return nil, nil
	}
	doc, err := e.dir.Load(ctx, scope)
	if err != nil {
		return nil, err
	}
	s := newStream(sc, doc)
	s.status.set(e.now(), StatePending, "not looked at yet")
	e.streams[scope] = s
	return s, nil
}

// exports reports whether cells of a class are exported.
func (e *Exporter) exports(class string) bool {
	if celld.NeverExported(class) {
		return false
	}
	if allow := e.settings.Export.Classes; len(allow) > 0 {
		return slices.Contains(allow, class)
	}
	return celld.DefaultClass(class)
}

// prove asks the bucket about every exam at once, within a limit.
func (e *Exporter) prove(ctx context.Context, exams []*exam) {
	var g errgroup.Group
	g.SetLimit(parallelProofs)
	for _, x := range exams {
		g.Go(func() error {
			x.res, x.err = e.prover.Prove(ctx, x.view.target)
			return nil
		})
	}
	_ = g.Wait() // every exam carries its own error
}

// requeue has the exams looked at again in the next round: something that
// concerns all streams came in between.
func (e *Exporter) requeue(exams []*exam) {
	for _, x := range exams {
		x.s.wait.due = e.rounds.n + 1
		e.waiting[x.s.doc.Scope] = x.s
	}
}

// work takes one stream as far as its proof allows. Whatever goes wrong with
// the stream becomes its status; only a failure of our own state is returned.
func (e *Exporter) work(ctx context.Context, x *exam) error {
	s := x.s
	err := x.err
	if err == nil {
		err = e.advance(ctx, s, x.view, x.res)
	}
	var own *stateError
	switch {
	case errors.As(err, &own):
		return err
	case errors.Is(err, context.Canceled):
		e.later(s)
		return nil
	case err != nil:
		e.note(s, err)
		e.later(s)
		if s.status.State == StateFull {
			// Room comes back at any time, and asking for it costs nothing.
			s.wait = backoff{due: e.rounds.n + 1}
		}
	}
	return nil
}

// note turns an error of one stream into its status and logs it once.
func (e *Exporter) note(s *stream, err error) {
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
		e.log.Log(context.Background(), level, "stream does not go on", "cell", s.doc.Scope, "epoch", s.doc.Residency.Epoch, "state", string(st), "err", err)
	}
	s.status.set(e.now(), st, err.Error())
	s.whole = true
	// What the ledger says may be why: read it again next time.
	s.led, s.plan = nil, nil
}

// later has the stream looked at again after its back-off.
func (e *Exporter) later(s *stream) {
	s.wait.again(e.rounds.n)
	e.waiting[s.doc.Scope] = s
}

// rest takes the stream off the list of those that wait for a round.
func (e *Exporter) rest(s *stream) {
	s.wait.reset()
	delete(e.waiting, s.doc.Scope)
	if !s.status.settled() {
		s.status.set(e.now(), StateExported, "")
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
// until it is mended, and a restart takes up from what is durable.
type stateError struct{ err error }

func (w *stateError) Error() string { return w.err.Error() }
func (w *stateError) Unwrap() error { return w.err }

func stateFailed(err error) error {
	if err == nil {
		return nil
	}
	return &stateError{err}
}

// rounds counts rounds for back-off and state.
type rounds struct{ n uint64 }
