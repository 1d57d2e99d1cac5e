package blobstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// A broker that answers RESOURCE_EXHAUSTED finds a request too large, or it or
// a proxy before it has too much to do at the moment. A record that is refused
// alone is therefore given up only when its own size is what cannot pass: one
// broker has refused it for the whole retry time, again and again and with no
// other answer in between, took a smaller request right after each of these
// refusals, and took none as large. Anything else begins the time anew.

// spell is the time in which one broker refuses one record alone.
type spell struct {
	address string
	bytes   int
	began   time.Time
	refused int
	// larger is set when the broker took a request of as many bytes; sizes
	// guards it.
	larger bool
}

// refusals is how often a record is refused at least before it is given up.
const refusals = 3

// sizes are the spells that last.
type sizes struct {
	mu     sync.Mutex
	spells map[*spell]struct{}
}

func (z *sizes) begin(sp *spell) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.spells == nil {
		z.spells = map[*spell]struct{}{}
	}
	z.spells[sp] = struct{}{}
}

// end ends a spell, if there is one.
func (z *sizes) end(sp *spell) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.spells, sp)
}

// took notes that a broker took a request.
func (z *sizes) took(address string, request *blobstreampb.ProduceBatchesRequest) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.spells) == 0 {
		return
	}
	size := proto.Size(request)
	for sp := range z.spells {
		if sp.address == address && size >= sp.bytes {
			sp.larger = true
		}
	}
}

func (z *sizes) tookLarger(sp *spell) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return sp.larger
}

// refusedAlone notes what came of sending items of which i is the first. It
// returns the spell in which that is, nil for none.
func (s *sender) refusedAlone(ctx context.Context, b *batch, i *item, o *outcome, sp *spell) *spell {
	if o.class != large || !s.takesSmall(ctx, o.from) {
		s.sizes.end(sp)
		return nil
	}
	if sp == nil || sp.address != o.from.Address || s.sizes.tookLarger(sp) {
		s.sizes.end(sp)
		size := field(batchHead(s.sink.cfg.Shape.Topic, b.lane.partition) + i.wireSize())
		sp = &spell{address: o.from.Address, bytes: size, began: s.sink.cfg.Now()}
		s.sizes.begin(sp)
	}
	sp.refused++
	return sp
}

// lasted says whether a spell's record is to be given up.
func (s *sender) lasted(sp *spell) bool {
	return sp.refused >= refusals && s.sink.cfg.Now().Sub(sp.began) >= s.sink.cfg.Retry
}

// takesSmall asks a broker with a request that holds nothing.
func (s *sender) takesSmall(ctx context.Context, to broker) bool {
	ctx, cancel := context.WithTimeout(ctx, s.sink.cfg.RequestTimeout)
	defer cancel()
	s.sink.stats.change(func(st *Stats) { st.Requests++ })
	_, err := s.transport.produce(ctx, to.Address, &blobstreampb.ProduceBatchesRequest{})
	return err == nil
}

// giveUp takes the one record of a spell out of its batch.
func (s *sender) giveUp(b *batch, i *item, o *outcome, sp *spell) {
	s.sink.cfg.Logger.Error("a record is larger than a blob-stream broker takes; it is given up, and a gap tells so",
		"partition", b.lane.partition, "bytes", sp.bytes, "since", sp.began, "error", o.err)
	b.refused = append(b.refused, refused{item: i, reason: fmt.Sprintf(
		"a request with the record takes %d bytes, and broker %s refused it as too large for %s while it took smaller ones; raise the broker's limit, or lower max_record_bytes (CELLD_EXPORT_MAX_RECORD_BYTES), which splits rows into more records",
		sp.bytes, o.from.ID, s.sink.cfg.Now().Sub(sp.began).Round(time.Millisecond))})
}
