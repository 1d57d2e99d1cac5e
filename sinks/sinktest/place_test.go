package sinktest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

// shelf is a place in memory.
type shelf struct {
	mu       sync.Mutex
	lines    [][]byte
	behavior sinktest.Behavior
	hits     int
	calm     chan struct{}
	// spoil replaces the sink by one that does its work badly.
	spoil func(sinks.Sink) sinks.Sink
}

func newShelf(*testing.T) *shelf { return &shelf{calm: make(chan struct{})} }

func (p *shelf) Sink(_ testing.TB, queueBytes int64) sinks.Sink {
	if queueBytes == 0 {
		queueBytes = 1 << 30
	}
	var s sinks.Sink = &plain{place: p, most: queueBytes / 2}
	if p.spoil != nil {
		s = p.spoil(s)
	}
	return s
}

func (p *shelf) Behave(_ testing.TB, b sinktest.Behavior) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behavior != sinktest.Calm {
		close(p.calm)
		p.calm = make(chan struct{})
	}
	p.behavior, p.hits = b, 0
}

func (p *shelf) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *shelf) Read(testing.TB) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

var errPlace = errors.New("as told")

func (p *shelf) write(ctx context.Context, lines [][]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits++
	switch calm := p.calm; p.behavior {
	case sinktest.Down:
		return errPlace
	case sinktest.Losing:
		p.lines = append(p.lines, lines...)
		return errPlace
	case sinktest.Slow:
		p.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		p.mu.Lock()
	case sinktest.Stalled:
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-calm:
		}
		p.mu.Lock()
		return errPlace
	}
	p.lines = append(p.lines, lines...)
	return nil
}

// plain is a sink with nothing but what the contract asks for.
type plain struct {
	place *shelf
	most  int64

	mu      sync.Mutex
	trouble string
}

func (s *plain) Name() string { return "plain" }

func (s *plain) Report() (state, lastError string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "", s.trouble
}

func (s *plain) say(trouble string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}

func (s *plain) Run(ctx context.Context, queue sinks.Queue) error {
	for ctx.Err() == nil {
		if err := s.batch(ctx, queue); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (s *plain) batch(ctx context.Context, queue sinks.Queue) error {
	var lines [][]byte
	var bytes int64
	var last uint64
	var deadline time.Time
	for bytes < s.most && len(lines) < 64 {
		e, err := queue.Next(ctx, deadline)
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		for rec, err := range e.Records() {
			if err != nil {
				return err
			}
			lines = append(lines, rec.AppendJSON(nil))
		}
		bytes += e.Bytes()
		last, deadline = e.Seq(), time.Now().Add(time.Millisecond)
	}
	if last == 0 {
		return nil
	}
	for {
		err := s.place.write(ctx, lines)
		if err == nil {
			break
		}
		s.say(err.Error())
		if ctx.Err() != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	s.say("")
	return queue.Ack(last)
}
