package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Flush sends everything that is in the spool when it is called, then the
// watermarks that this makes due, also those of stretches without records.
// It returns nil when all is acknowledged, and otherwise, when ctx ends, which
// sink lacks what. What was refused counts as acknowledged: Refusals and Untold
// tell of it. Run must be under way.
func (e *Engine) Flush(ctx context.Context) error {
	e.flush.begin()
	defer e.flush.end()
	// A watermark that is made here and refused would be refused for ever.
	pass := certifying{all: true, refusedTo: e.spool.Last()}
	for {
		// A mark on its way, also one of the certifier's own, holds up those
		// that follow it.
		target := max(e.spool.Last(), e.certifier.last())
		if err := e.settle(ctx, target); err != nil {
			return err
		}
		n, err := e.certifier.certify(ctx, pass)
		if err != nil {
			return err
		}
		if n == 0 && e.certifier.last() <= target {
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
			last := o.lastErr.text
			if r, ok := o.sink.(Reporter); ok {
				if _, retrying := r.Report(); retrying != "" {
					last = retrying
				}
			}
			if last != "" {
				text += ", last error: " + last
			}
			lack = append(lack, text)
		}
		o.mu.Unlock()
	}
	return strings.Join(lack, "; ")
}

// flush is the flushes that are under way.
type flush struct {
	asked signal

	mu      sync.Mutex
	number  uint64
	running int
}

func (f *flush) begin() {
	f.mu.Lock()
	f.running++
	f.number++
	f.mu.Unlock()
	f.asked.fire()
}

func (f *flush) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
}

// current is the number of the newest flush while one is under way, else 0.
func (f *flush) current() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == 0 {
		return 0
	}
	return f.number
}
