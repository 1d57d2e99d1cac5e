package exporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"celldexport/ltxtail"
)

// Pending is a cell that Once could not finish, and why.
type Pending struct{ Cell, Reason string }

// shutdownTime bounds the last round and the last delivery of Run.
const shutdownTime = 20 * time.Second

// firstWalk is how often it is looked whether the directory was walked once.
const firstWalk = 20 * time.Millisecond

// Run exports until ctx ends. It then looks at the directory once more,
// delivers what it holds and returns nil; what cannot be delivered in time is
// logged and goes out at the next start. A failing state directory stops the
// export but not Run, which reports it in Status. A second exporter for the
// same node ends it with an error.
func (e *Exporter) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return e.delivery.Run(work) })
	tailing, stopTail := context.WithCancel(work)
	g.Go(func() error { return e.tail.Run(tailing) })
	g.Go(func() error { e.retention.run(tailing); return nil })
	err := e.loop(ctx)
	stopTail()
	if err == nil {
		last, cancel := context.WithTimeout(work, e.shutdown)
		err = e.finishUp(last)
		cancel()
	}
	stop()
	return errors.Join(err, g.Wait())
}

// loop runs rounds until ctx ends.
func (e *Exporter) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		walked, err := e.tick(ctx)
		if err != nil {
			return err
		}
		// What tick saw decides, not what has become of it since: a walk that
		// ends just now is still to have its round.
		if walked {
			timer.Reset(e.every)
		} else {
			timer.Reset(firstWalk)
		}
	}
}

// tick runs one round and files its outcome. It runs none, and walked is
// false, while the directory was not walked yet: ready means that it was. Only
// errors that end the process are returned.
func (e *Exporter) tick(ctx context.Context) (walked bool, err error) {
	e.report.mu.Lock()
	stopped := e.report.failure != ""
	e.report.mu.Unlock()
	walked, _ = e.tail.Walked()
	if stopped || !walked {
		e.publish(nil)
		return walked, nil
	}
	err = e.round(ctx)
	var own *stateError
	switch {
	case errors.Is(err, errNodeTaken):
		return walked, err
	case errors.As(err, &own):
		e.fail(err)
	case err != nil && ctx.Err() == nil:
		e.log.Error("round", "err", err)
	}
	e.publish(err)
	return walked, nil
}

// fail stops the export for good: what the state directory holds can no
// longer be trusted to follow what was sent.
func (e *Exporter) fail(err error) {
	e.log.Error("the state directory fails, export stops: mend the disk and restart", "err", err)
	e.report.mu.Lock()
	defer e.report.mu.Unlock()
	e.report.failure = err.Error()
}

// finishUp is the last round and the last delivery.
func (e *Exporter) finishUp(ctx context.Context) error {
	if err := e.tail.Scan(); err != nil {
		e.log.Warn("last walk of the watch directory", "err", err)
	}
	half, cancel := context.WithTimeout(ctx, e.shutdown/2)
	_, err := e.tick(half)
	cancel()
	if err != nil {
		return err
	}
	if err := e.journal.checkpoint(ctx); err != nil {
		return err
	}
	if err := e.deliver(ctx); err != nil {
		e.log.Warn("not everything was delivered; it goes out at the next start", "err", err)
	}
	return nil
}

// Once exports what is on disk now: scans, proves or finds fenced everything
// present, delivers and certifies it. It returns what is left when timeout
// ends, by cell.
func (e *Exporter) Once(ctx context.Context, timeout time.Duration) ([]Pending, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return e.delivery.Run(work) })
	left, err := e.once(ctx, e.now().Add(timeout))
	stop()
	return left, errors.Join(err, g.Wait())
}

func (e *Exporter) once(ctx context.Context, deadline time.Time) ([]Pending, error) {
	var last, walk error
	for {
		// A directory that cannot be read holds up what is in it alone.
		if walk = e.walk(); errors.Is(walk, ltxtail.ErrRoot) {
			return nil, walk
		}
		if last = e.round(ctx); last != nil {
			var own *stateError
			if errors.As(last, &own) || errors.Is(last, errNodeTaken) || ctx.Err() != nil {
				return nil, last
			}
		}
		e.publish(last)
		if last == nil && walk == nil && !e.rounds.busy() && !e.catchUps.pending() {
			break
		}
		if e.now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(e.every, lowLatency)):
		}
	}
	if err := e.journal.checkpoint(ctx); err != nil {
		return nil, err
	}
	left := e.rounds.unfinished()
	if last != nil {
		left = append(left, Pending{Cell: "all cells", Reason: last.Error()})
	}
	if e.catchUps.pending() {
		left = append(left, Pending{Cell: "all cells", Reason: "a sink lacks streams that are not sent to it as a whole yet"})
	}
	if walk != nil {
		left = append(left, Pending{Cell: "watch directory", Reason: walk.Error()})
	}
	flush, cancel := context.WithDeadline(ctx, later(deadline, e.now().Add(lowLatency)))
	defer cancel()
	if err := e.deliver(flush); err != nil {
		left = append(left, Pending{Cell: "all cells", Reason: fmt.Sprintf("not everything was delivered: %v", err)})
	}
	e.publish(last)
	return left, nil
}

// walk reads the directory when it was not read whole yet.
func (e *Exporter) walk() error {
	if _, whole := e.tail.Walked(); whole {
		return nil
	}
	return e.tail.Scan()
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// busy reports whether a later round may finish something. What is left to an
// exporter before us is not finished by waiting.
func (rd *rounds) busy() bool {
	for _, s := range rd.streams {
		if !s.status.settled() && s.left == 0 {
			return true
		}
	}
	return false
}

// unfinished are the streams that have something left to do.
func (rd *rounds) unfinished() []Pending {
	var left []Pending
	for scope, s := range rd.streams {
		if !s.status.settled() {
			left = append(left, Pending{Cell: scope, Reason: fmt.Sprintf("%s: %s", s.status.State, s.status.Reason)})
		}
	}
	slices.SortFunc(left, func(a, b Pending) int { return strings.Compare(a.Cell, b.Cell) })
	return left
}
