package blobstream

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	blobstreampb "celldexport/sinks/blobstream/proto"
)

// class is what to do about a batch that was not stored, or not surely.
type class uint8

const (
	// unsure: the answer is missing, or the broker is busy. Soon again.
	unsure class = iota
	// elsewhere: another broker has the lease, or no broker is there. Again
	// when brokers change or the lease has moved.
	elsewhere
	// misfit: the topic or its shape is not what the brokers have. Again, but
	// somebody has to change something first.
	misfit
	// large: the broker does not take that much at once. In halves, and one
	// record again until it is seen that its size is why.
	large
)

// backoffs are the first and the longest wait of each class.
var backoffs = [...]struct{ first, longest time.Duration }{
	unsure:    {25 * time.Millisecond, time.Second},
	elsewhere: {250 * time.Millisecond, 2 * time.Second},
	misfit:    {time.Second, 30 * time.Second},
	large:     {25 * time.Millisecond, time.Second},
}

// settling is the longest wait once brokers have changed: the new owner needs
// a moment to take the lease.
const settling = 100 * time.Millisecond

// spread is by how much a wait differs from the one meant, either way.
const spread = 0.5

// pause is the wait before attempt number n, from 1, after an outcome.
func (c class) pause(n int, random float64) time.Duration {
	limits := backoffs[c]
	d := min(limits.first<<min(n-1, 20), limits.longest)
	return time.Duration(math.Round(float64(d) * (1 - spread + 2*spread*random)))
}

// outcome is a batch that was not stored.
type outcome struct {
	class class
	err   error
	// from is the broker that was asked, if one was.
	from broker
	// changed is closed when brokers are others than those that were asked.
	changed <-chan struct{}
}

// errResults is an answer that does not fit the request.
var errResults = errors.New("the answer has another number of results than the request has batches")

// failed is the outcome of a call that failed as a whole. Whether its batches
// were stored is not known.
func failed(b broker, err error) outcome {
	o := outcome{class: unsure, from: b, err: fmt.Errorf("produce to broker %s at %s: %w", b.ID, b.Address, err)}
	switch status.Code(err) {
	case codes.ResourceExhausted:
		o.class = large
	case codes.Unimplemented:
		o.class = misfit
		o.err = fmt.Errorf("produce to broker %s at %s: it is no blob-stream broker: %w", b.ID, b.Address, err)
	}
	return o
}

// judged is the outcome that a broker states; nil when the batch is stored.
func judged(b broker, topic string, partition uint32, r *blobstreampb.ProduceBatchResponse) *outcome {
	o := &outcome{class: unsure, from: b}
	var why string
	switch r.GetStatus() {
	case blobstreampb.ProduceStatus_PRODUCE_STATUS_OK:
		return nil
	case blobstreampb.ProduceStatus_PRODUCE_STATUS_NOT_LEASE_HOLDER:
		o.class, why = elsewhere, "it does not own the partition; if this lasts, its node id, the partitions or the brokers listed differ from its own"
	case blobstreampb.ProduceStatus_PRODUCE_STATUS_UNKNOWN_TOPIC:
		o.class, why = misfit, "it does not know the topic"
	case blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED:
		why = "it is overloaded"
	case blobstreampb.ProduceStatus_PRODUCE_STATUS_BAD_REQUEST:
		o.class, why = misfit, "it calls the request bad; partitions and zones have to be those of the topic"
	default:
		why = fmt.Sprintf("it answers %d, which this program does not know", r.GetStatus())
	}
	o.err = fmt.Errorf("produce to broker %s at %s, topic %s, partition %d: %s", b.ID, b.Address, topic, partition, why)
	if m := r.GetErrorMessage(); m != "" {
		o.err = fmt.Errorf("%w: %s", o.err, m)
	}
	return o
}
