package bucket

import (
	"context"
	"time"

	"celldexport/internal/objstore"
)

// put is an object on its way.
type put struct {
	state State
	whole uint64 // the entry to acknowledge, 0 for none
	rows  int64
	size  int
	done  chan error // gets nil when it is stored
	stop  context.CancelFunc
	// flying ends once done has what became of it: waits for entries end then.
	flying context.Context
}

const contentType = "application/vnd.apache.parquet"

// send begins to write the batch. Nothing is in flight.
func (r *run) send(ctx context.Context) error {
	b := r.batch
	r.batch, r.urgent = nil, false
	if b.enc == nil {
		r.sink.locate(0, 0)
		return r.queue.Ack(b.whole)
	}
	body, err := b.enc.finish()
	if err != nil {
		return err
	}
	p := &put{whole: b.whole, rows: b.enc.rows, size: len(body), done: make(chan error, 1)}
	if p.state, err = r.name(b); err != nil {
		return err
	}
	r.from = p.state.next()
	running, stop := context.WithCancel(ctx)
	flying, land := context.WithCancel(ctx)
	p.stop, p.flying = stop, flying
	go func() {
		defer land()
		p.done <- r.sink.retry(running, func() error {
			_, err := objstore.PutBytes(running, r.sink.cfg.Store, p.state.Key, body, objstore.PutOptions{ContentType: contentType})
			return err
		})
	}()
	r.put = p
	return nil
}

// name chooses the name of the object that holds the batch, and saves it. An
// object of before a restart keeps its name.
func (r *run) name(b *batch) (State, error) {
	state := State{First: b.first, Last: b.part}
	if b.first.Records > 0 {
		state.From = r.from
	}
	if b.part == (Mark{}) {
		state.Last = Mark{Entry: b.whole}
	}
	if r.replaying() {
		state.Key = r.again.Key
		same := state == r.again
		r.again = State{}
		if same {
			return state, nil
		}
	}
	r.micros = max(r.sink.cfg.Now().UnixMicro(), r.micros+1)
	state.Key = Name{Node: r.sink.cfg.Node, Micros: r.micros, Rand: r.sink.cfg.Rand()}.Key()
	saved, err := state.encode()
	if err != nil {
		return state, err
	}
	return state, r.queue.Save(saved)
}

// collect acknowledges the object in flight when it is stored; with wait it
// waits for that, at most until ctx ends.
func (r *run) collect(ctx context.Context, wait bool) error {
	p := r.put
	if p == nil {
		return nil
	}
	if wait {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.done:
			return r.stored(p, err)
		}
	}
	select {
	case err := <-p.done:
		return r.stored(p, err)
	default:
		return nil
	}
}

func (r *run) stored(p *put, err error) error {
	p.stop()
	r.put = nil
	if err != nil {
		return err
	}
	r.sink.count(p)
	r.sink.locate(p.state.places())
	if p.whole == 0 {
		return nil // all of it is part of one entry
	}
	return r.queue.Ack(p.whole)
}

// abandon stops the object in flight. One that is stored by then is still
// acknowledged; another is written again by the next run.
func (r *run) abandon() error {
	p := r.put
	if p == nil {
		return nil
	}
	p.stop()
	if err := <-p.done; err != nil {
		return nil
	}
	return r.stored(p, nil)
}

// count notes a stored object.
func (s *Sink) count(p *put) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Objects++
	s.stats.Bytes += int64(p.size)
	s.stats.Records += p.rows
	s.stats.LastKey, s.stats.LastAt = p.state.Key, s.cfg.Now()
}

// retry calls fn until it succeeds or ctx ends, with waits that double and
// vary: nodes that lost the bucket together do not come back together.
func (s *Sink) retry(ctx context.Context, fn func() error) error {
	delay := s.cfg.RetryMin
	for {
		err := fn()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		s.note(err)
		if err == nil {
			return nil
		}
		less := time.Duration(float64(delay) / 2 * float64(s.cfg.Rand()) / (1 << 32))
		timer := time.NewTimer(delay - less)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		delay = min(2*delay, s.cfg.RetryMax)
	}
}

// note keeps the error that is being retried, nil when it passed.
func (s *Sink) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.stats.Retrying = ""
		return
	}
	if s.stats.Retrying == "" {
		s.stats.RetryingSince = s.cfg.Now()
	}
	s.stats.Failures++
	s.stats.Retrying = err.Error()
}
