package exporter

import (
	"context"
	"errors"
	"time"
)

// These let a test drive an exporter by hand, round by round.

// Walk reads the node's directory, Round works on what it shows.
func (e *Exporter) Walk() error { return e.tail.Scan(context.Background()) }

// Walks is how often the directory was walked.
func Walks(e *Exporter) int { return e.tail.Stats().Scans }

// Round runs one round.
func (e *Exporter) Round(ctx context.Context) error {
	err := e.round(ctx)
	e.publish(err)
	return err
}

// Gather waits for the streams that rounds left behind.
func (e *Exporter) Gather(most time.Duration) bool { return e.rounds.turns.gather(most) }

// Behind is how many streams are left behind.
func (e *Exporter) Behind() int {
	e.rounds.turns.mu.Lock()
	defer e.rounds.turns.mu.Unlock()
	return len(e.rounds.turns.behind)
}

// Failed reports whether the exporter's own state failed, told or not.
func (e *Exporter) Failed() bool {
	e.rounds.turns.mu.Lock()
	defer e.rounds.turns.mu.Unlock()
	return e.journal.failed != nil
}

// Checkpoint brings everything up to the spool.
func (e *Exporter) Checkpoint(ctx context.Context) error { return (ending{e}).checkpoint(ctx) }

// Deliver runs the sinks until ctx ends, Flush has them send what is spooled.
func (e *Exporter) Deliver(ctx context.Context) error { return e.delivery.Run(ctx) }

// Flush sends and certifies everything that is spooled.
func (e *Exporter) Flush(ctx context.Context) error { return e.delivery.Flush(ctx) }

// Unfinished are the streams that have something left to do.
func (e *Exporter) Unfinished() []Pending {
	left, err := (ending{e}).unfinished(context.Background())
	if err != nil {
		left = append(left, Pending{Cell: "all cells", Reason: err.Error()})
	}
	return left
}

// Stuck reports whether Run left something behind.
func (e *Exporter) Stuck() bool { return e.stuck != nil || !e.rounds.turns.empty() }

// Unstick waits for what Run left behind, once it can end, and closes. That
// something was left is for Stuck to say, before it can end.
func (e *Exporter) Unstick() error {
	if e.stuck != nil {
		select {
		case <-e.stuck:
		case <-time.After(time.Minute):
			return errors.New("the reading is still behind")
		}
		e.stuck = nil
	}
	if !e.rounds.turns.gather(time.Minute) {
		return errors.New("a stream is still behind")
	}
	return e.Close()
}
