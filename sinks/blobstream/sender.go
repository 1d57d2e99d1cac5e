package blobstream

import (
	"context"
	"errors"
	"sync"
	"time"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// sender brings batches to their brokers, each in a goroutine of its own once
// its first request has failed.
type sender struct {
	sink      *Sink
	members   *members
	transport transport
	results   *results
	sizes     sizes
	// slots bounds the requests under way.
	slots chan struct{}
	work  sync.WaitGroup
}

// group is the batches of one request.
type group struct {
	broker  broker
	changed <-chan struct{}
	batches []*batch
	size    int
}

// dispatch sends batches for the first time: those of one broker together, in
// requests as large as a broker takes.
func (s *sender) dispatch(ctx context.Context, batches []*batch) {
	groups := map[string]*group{}
	for _, b := range batches {
		owner, changed, err := s.members.owner(b.lane.partition)
		if err != nil {
			s.work.Go(func() { s.deliver(ctx, b, &outcome{class: elsewhere, err: err, changed: changed}) })
			continue
		}
		g, size := groups[owner.Address], field(b.wire)
		if g != nil && g.size+size > maxRequest {
			full := g
			s.work.Go(func() { s.first(ctx, full) })
			g = nil
		}
		if g == nil {
			g = &group{broker: owner, changed: changed}
			groups[owner.Address] = g
		}
		g.batches = append(g.batches, b)
		g.size += size
	}
	for _, g := range groups {
		s.work.Go(func() { s.first(ctx, g) })
	}
}

// first sends batches of one broker. Those that are not stored go on alone.
func (s *sender) first(ctx context.Context, g *group) {
	request := &blobstreampb.ProduceBatchesRequest{}
	for _, b := range g.batches {
		request.Batches = append(request.Batches, b.message(s.sink.cfg.Shape.Topic, b.items))
	}
	outcomes := s.call(ctx, g.broker, request)
	for i, b := range g.batches {
		if o := outcomes[i]; o != nil {
			o.changed = g.changed
			if o.class == large && len(g.batches) > 1 {
				o.class = unsure // alone it may be small enough
			}
			s.work.Go(func() { s.deliver(ctx, b, o) })
		} else {
			s.stored(b)
		}
	}
}

// stored hands a batch back that is stored, but for what is refused of it.
func (s *sender) stored(b *batch) {
	s.sink.state.delivered(b.lane.partition)
	s.sink.stats.change(func(st *Stats) {
		st.Records += int64(len(b.items) - len(b.refused))
		st.Bytes += int64(b.bytes)
		for _, r := range b.refused {
			st.Bytes -= int64(r.item.bytes())
		}
		st.Refused += int64(len(b.refused))
		st.Batches++
	})
	s.results.put(b)
}

// deliver sends a batch until it is stored, or ctx ends.
func (s *sender) deliver(ctx context.Context, b *batch, o *outcome) {
	if s.insist(ctx, b, b.items, o) {
		s.stored(b)
	}
}

// insist sends items of a batch, in order, until they are stored or, for what
// is too large, refused for good. It returns false when ctx ended.
func (s *sender) insist(ctx context.Context, b *batch, items []item, o *outcome) bool {
	var last class
	var sp *spell
	defer func() { s.sizes.end(sp) }()
	for same := 1; ; same++ { // outcomes of one class in a row
		if ctx.Err() != nil {
			return false
		}
		s.sink.state.failed(b.lane.partition, o.err)
		if o.class == large && len(items) > 1 {
			return s.halves(ctx, b, items)
		}
		if sp = s.refusedAlone(ctx, b, &items[0], o, sp); sp != nil && s.lasted(sp) {
			s.giveUp(b, &items[0], o, sp)
			return true
		}
		if o.class != last {
			last, same = o.class, 1
		}
		if !s.pause(ctx, o, same) {
			return false
		}
		if o = s.again(ctx, b, items); o == nil {
			return true
		}
	}
}

// halves sends items that are too many for one request.
func (s *sender) halves(ctx context.Context, b *batch, items []item) bool {
	middle := len(items) / 2
	for _, half := range [...][]item{items[:middle], items[middle:]} {
		if o := s.again(ctx, b, half); o != nil && !s.insist(ctx, b, half, o) {
			return false
		}
	}
	return true
}

// again sends items of a batch once more, to whom the partition belongs now.
func (s *sender) again(ctx context.Context, b *batch, items []item) *outcome {
	s.sink.stats.change(func(st *Stats) { st.Retries++ })
	s.expire(b, len(items))
	to, changed, err := s.members.owner(b.lane.partition)
	if err != nil {
		return &outcome{class: elsewhere, err: err, changed: changed}
	}
	topic := s.sink.cfg.Shape.Topic
	request := &blobstreampb.ProduceBatchesRequest{Batches: []*blobstreampb.ProduceBatchRequest{b.message(topic, items)}}
	o := s.call(ctx, to, request)[0]
	if o != nil {
		o.changed = changed
	}
	return o
}

// expire counts records as undelivered when a batch's retry time ran out, and
// begins a new one: they are not given up, and what is sent is what the spool
// holds.
func (s *sender) expire(b *batch, records int) {
	if now := s.sink.cfg.Now(); now.Sub(b.began) >= s.sink.cfg.Retry {
		b.began = now
		s.sink.stats.change(func(st *Stats) { st.Undelivered += int64(records) })
	}
}

// pause waits before attempt number n. Who waits for another broker is woken
// when brokers have changed since the last attempt.
func (s *sender) pause(ctx context.Context, o *outcome, n int) bool {
	wait := o.class.pause(n, s.sink.cfg.Rand())
	changed, settle := o.changed, settling
	if o.class != elsewhere {
		changed = nil
	}
	if errors.Is(o.err, errUnknownBrokers) || errors.Is(o.err, errNoBroker) {
		settle = 0 // there was nobody to take the lease from
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-changed:
	}
	timer.Reset(min(wait, settle))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// call makes one request and returns an outcome for each of its batches, nil
// for those that are stored.
func (s *sender) call(ctx context.Context, to broker, request *blobstreampb.ProduceBatchesRequest) []*outcome {
	outcomes := make([]*outcome, len(request.Batches))
	all := func(o outcome) []*outcome {
		for i := range outcomes {
			each := o
			outcomes[i] = &each
		}
		return outcomes
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return all(outcome{class: unsure, err: ctx.Err()})
	}
	s.sink.stats.change(func(st *Stats) { st.Requests++ })
	bounded, cancel := context.WithTimeout(ctx, s.sink.cfg.RequestTimeout)
	defer cancel()
	response, err := s.transport.produce(bounded, to.Address, request)
	if err == nil && len(response.GetResults()) != len(request.Batches) {
		err = errResults
	}
	if err != nil {
		return all(failed(to, err))
	}
	s.sizes.took(to.Address, request)
	for i, r := range response.GetResults() {
		b := request.Batches[i]
		outcomes[i] = judged(to, b.Topic, b.VirtualPartitionId, r)
	}
	return outcomes
}
