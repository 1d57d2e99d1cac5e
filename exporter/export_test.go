package exporter

import "context"

// These let a test drive an exporter by hand, round by round.

// Walk reads the node's directory, Round works on what it shows.
func (e *Exporter) Walk() error { return e.tail.Scan() }

// Walks is how often the directory was walked.
func Walks(e *Exporter) int { return e.tail.Stats().Scans }

// Round runs one round.
func (e *Exporter) Round(ctx context.Context) error {
	err := e.round(ctx)
	e.publish(err)
	return err
}

// Checkpoint brings everything up to the spool.
func (e *Exporter) Checkpoint(ctx context.Context) error { return e.journal.checkpoint(ctx) }

// Deliver runs the sinks until ctx ends, Flush has them send what is spooled.
func (e *Exporter) Deliver(ctx context.Context) error { return e.delivery.Run(ctx) }

// Flush sends and certifies everything that is spooled.
func (e *Exporter) Flush(ctx context.Context) error { return e.delivery.Flush(ctx) }

// Unfinished are the streams that have something left to do.
func (e *Exporter) Unfinished() []Pending { return e.rounds.unfinished() }
