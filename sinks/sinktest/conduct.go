package sinktest

import (
	"sync"
	"time"
)

// Conduct is how the servers of a place behave, for places that ask at every
// request. The zero value is calm; it is safe for concurrent use.
type Conduct struct {
	mu       sync.Mutex
	behavior Behavior
	hits     int
	// stalled is closed when requests that wait may go on.
	stalled chan struct{}
}

// Set has later requests meet the behavior and counts hits anew. Requests that
// are stalled go on.
func (c *Conduct) Set(b Behavior) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled != nil {
		close(c.stalled)
		c.stalled = nil
	}
	if b == Stalled {
		c.stalled = make(chan struct{})
	}
	c.behavior, c.hits = b, 0
}

// Hit counts a request. What a slow or stalled place does before the request
// takes effect is wait, nil for any other.
func (c *Conduct) Hit() (n int, b Behavior, wait func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits++
	switch stalled := c.stalled; c.behavior {
	case Slow:
		wait = func() { time.Sleep(20 * time.Millisecond) }
	case Stalled:
		wait = func() { <-stalled }
	}
	return c.hits, c.behavior, wait
}

// Hits is how many requests there were since Set.
func (c *Conduct) Hits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits
}
