package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"celldexport/ltxtail"
)

// Pending is a cell that Once could not finish, and why.
type Pending struct{ Cell, Reason string }

const (
	// firstWalk is how often it is looked whether the directory was walked
	// once.
	firstWalk = 20 * time.Millisecond
	// tailTime is how long a walk may take to notice that it is told to end.
	tailTime = time.Second
	// roundTime is what the rounds of Once have at least, however short its
	// time is: the least that shows what is pending.
	roundTime = 5 * time.Second
)

// Run exports until ctx ends. It then looks at the directory once more, proves
// what is pending, delivers what it holds and returns nil, after ShutdownTime
// at the latest; what is left by then is logged and goes out at the next start.
// A failing state directory stops the export but not Run, which reports it in
// Status. A second exporter for the same node ends it with an error.
func (e *Exporter) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return sendOn(work, e) })
	tailing, stopTail := context.WithCancel(work)
	defer stopTail()
	g.Go(func() error { e.retention.run(tailing); return nil })
	tailed := make(chan error, 1)
	go func() { tailed <- e.tail.Run(tailing) }()
	read := make(chan error, 1)
	end := ending{e}
	go func() {
		rounds, over := context.WithCancel(ctx)
		err := e.loop(rounds)
		over() // also for what was left behind
		stopTail()
		if err == nil {
			err = end.look(work)
		} else {
			end.gather()
		}
		read <- err
	}()
	err := end.finish(ctx, read)
	stop()
	// A walk that hangs in the file system is left behind: it uses nothing
	// but its own memory.
	_, walked := await(tailed, tailTime)
	return errors.Join(err, walked, g.Wait())
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
// false, while the directory was not walked yet. Only errors that end the
// process are returned.
func (e *Exporter) tick(ctx context.Context) (walked bool, err error) {
	walked, _ = e.tail.Walked()
	if !walked || e.report.failed() != "" {
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
	case ctx.Err() != nil:
		err = nil // told to stop: nothing failed
	}
	e.publish(err)
	return walked, nil
}

// fail stops the export for good: what the state directory holds can no
// longer be trusted to follow what was sent. It may be called from any
// goroutine, and says so once.
func (e *Exporter) fail(err error) {
	if e.report.fail(err, e.now()) {
		e.log.Error("the state directory fails, export stops: mend the disk and restart", "err", err)
	}
}

// Once exports what is on disk now: scans, proves or finds fenced everything
// present, delivers and certifies it. It returns what is left when timeout
// ends, by cell; whatever hangs does not make that much later.
func (e *Exporter) Once(ctx context.Context, timeout time.Duration) ([]Pending, error) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return sendOn(work, e) })
	left, err := e.once(ctx, e.now().Add(timeout))
	stop()
	err = errors.Join(err, g.Wait())
	if why := e.report.failed(); why != "" && err == nil {
		err = fmt.Errorf("the state directory failed: %s", why)
	}
	return left, err
}

// sendOn runs the sinks. A spool that cannot be used any more stops the export
// at once, whoever notices it.
func sendOn(ctx context.Context, e *Exporter) error {
	err := e.delivery.Run(ctx)
	if err != nil {
		e.fail(err)
	}
	return err
}

func (e *Exporter) once(ctx context.Context, deadline time.Time) ([]Pending, error) {
	bounded, cancel := context.WithDeadline(ctx, later(deadline, e.now().Add(roundTime)))
	last, walk, err := onceRounds(ctx, bounded, e, deadline)
	cancel()
	(ending{e}).gather()
	if err != nil || ctx.Err() != nil {
		return nil, cmp.Or(err, ctx.Err())
	}
	if err := (ending{e}).checkpoint(ctx); err != nil {
		return nil, err
	}
	left, err := e.onceLeft(ctx, last, walk)
	if err != nil {
		return nil, err
	}
	flush, cancel := context.WithDeadline(ctx, later(deadline, e.now().Add(lowLatency)))
	defer cancel()
	if err := e.deliver(flush); err != nil {
		left = append(left, Pending{Cell: "all cells", Reason: fmt.Sprintf("not everything was delivered: %v", err)})
	}
	if !errors.Is(walk, ltxtail.ErrSilent) {
		e.publish(last)
	}
	return left, nil
}

// onceRounds walks and works until nothing is left or the time is over, which
// ends bounded no sooner than the deadline. It returns the errors of the last
// round and walk, and the one that ends Once.
func onceRounds(ctx, bounded context.Context, e *Exporter, deadline time.Time) (last, walk, err error) {
	for {
		// A directory that cannot be read holds up what is in it alone. What a
		// walk did not come to must not be taken for gone.
		if walk = e.walk(bounded); errors.Is(walk, ltxtail.ErrRoot) {
			return nil, walk, walk
		} else if bounded.Err() != nil {
			break
		}
		if last = e.round(bounded); last != nil {
			var own *stateError
			if errors.As(last, &own) || errors.Is(last, errNodeTaken) || ctx.Err() != nil {
				return last, walk, last
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
			return last, walk, ctx.Err()
		case <-time.After(min(e.every, lowLatency)):
		}
	}
	return last, walk, nil
}

// onceLeft is what the rounds of Once left. last and walk are the errors of
// the last round and walk.
func (e *Exporter) onceLeft(ctx context.Context, last, walk error) (left []Pending, err error) {
	if !errors.Is(walk, ltxtail.ErrSilent) {
		if left, err = (ending{e}).unfinished(ctx); err != nil {
			return nil, err
		}
	}
	if last != nil {
		left = append(left, Pending{Cell: "all cells", Reason: last.Error()})
	}
	if e.catchUps.lacking() {
		left = append(left, Pending{Cell: "all cells", Reason: "a sink lacks streams that are not sent to it as a whole yet"})
	}
	if walk != nil {
		left = append(left, Pending{Cell: "watch directory", Reason: walk.Error()})
	}
	return left, nil
}

// checkpoint brings everything up to the spool, when nobody else may be at
// work. After a failure of our own state there is nothing to be brought up; it
// was told, unless a stream that was left behind met it since the last round.
func (en ending) checkpoint(ctx context.Context) error {
	rd := en.rounds
	rd.turns.mu.Lock()
	defer rd.turns.mu.Unlock()
	err := rd.turns.failed()
	if told := en.report.failed() != ""; err != nil && !told {
		return err
	}
	if rd.journal.failed != nil {
		return nil
	}
	return rd.journal.checkpoint(ctx)
}

// walk reads the directory when it was not read whole yet.
func (e *Exporter) walk(ctx context.Context) error {
	if _, whole := e.tail.Walked(); whole {
		return nil
	}
	return e.tail.Scan(ctx)
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
	rd.turns.mu.Lock()
	defer rd.turns.mu.Unlock()
	if len(rd.agenda.changed) > 0 {
		return true
	}
	for _, s := range rd.streams {
		if !s.account().settled() && s.left == 0 {
			return true
		}
	}
	return false
}
