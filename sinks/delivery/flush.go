package delivery

import (
	"context"
	"fmt"
	"strings"
)

// Flush sends everything that is in the spool when it is called, then the
// watermarks that this makes due, also those of stretches without records.
// It returns nil when all is acknowledged, and otherwise, when ctx ends, which
// sink lacks what. Run must be under way.
func (e *Engine) Flush(ctx context.Context) error {
	e.beginFlush()
	defer e.endFlush()
	for {
		// A mark on its way, also one of the certifier's own, holds up those
		// that follow it.
		target := max(e.spool.Last(), e.newestMark())
		if err := e.settle(ctx, target); err != nil {
			return err
		}
		n, err := e.certify(ctx, true)
		if err != nil {
			return err
		}
		if n == 0 && e.newestMark() <= target {
			return nil
		}
	}
}

// settle waits until every sink has acknowledged entry seq.
func (e *Engine) settle(ctx context.Context, seq uint64) error {
	for {
		progress := e.progress.wait()
		if e.behind(seq) == "" {
			return nil
		}
		if err := e.spool.Err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("flush: %s: %w", e.behind(seq), ctx.Err())
		case <-progress:
		}
	}
}

// behind names the sinks that have not acknowledged entry seq, "" for none.
func (e *Engine) behind(seq uint64) string {
	var lack []string
	for _, o := range e.outlets {
		o.mu.Lock()
		if o.acked < seq {
			text := fmt.Sprintf("sink %s has acknowledged entry %d of %d", o.sink.Name(), o.acked, seq)
			if o.lastErr != "" {
				text += ", last error: " + o.lastErr
			}
			lack = append(lack, text)
		}
		o.mu.Unlock()
	}
	return strings.Join(lack, "; ")
}

func (e *Engine) beginFlush() {
	e.mu.Lock()
	e.flushed++
	e.flushSeq++
	e.mu.Unlock()
	e.flushes.fire()
}

func (e *Engine) endFlush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flushed--
}

// flushing is the number of the newest flush while one is under way, else 0.
func (e *Engine) flushing() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flushed == 0 {
		return 0
	}
	return e.flushSeq
}
