// Package brokertest is an in-process stand-in for a blob-stream deployment:
// brokers that serve the protocol on loopback, share what they stored, hold
// leases on partitions, and misbehave when told to. Only tests use it.
package brokertest

import (
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/sinktest/loopback"
)

// Topic is a topic that the brokers are configured with.
type Topic struct {
	Name string
	// Partitions is how many each writer has, Writers how many there are.
	Partitions, Writers uint32
}

// Options are a deployment's settings.
type Options struct {
	Topics []Topic
	// Writer is the writer that this deployment serves.
	Writer uint32
	// FlushDelay is how long accepted records wait before they are stored and
	// acknowledged, 10 ms by default.
	FlushDelay time.Duration
	// DrainDelay is how long after a change of members a partition's old
	// owner keeps its lease, LeaseTime how long after a crash.
	DrainDelay, LeaseTime time.Duration
	// OutOfRange is the answer for a partition that a topic does not have:
	// releases differ, OVERLOADED by default.
	OutOfRange blobstreampb.ProduceStatus
	// MaxRequest is the largest request in bytes, 16 MiB by default.
	MaxRequest int
	// Fault, when set, is asked about every produce request and may have the
	// broker do something else than its work. It is called from several
	// goroutines.
	Fault func(broker string, request *blobstreampb.ProduceBatchesRequest) Fault
}

// Fault is how a produce request goes wrong.
type Fault uint8

// The faults.
const (
	// None: the request is served.
	None Fault = iota
	// DropBefore: the call fails and nothing is stored.
	DropBefore
	// LoseAnswer: the records are stored and the call fails.
	LoseAnswer
	// Hang: the records are stored and no answer ever comes.
	Hang
	// TooFew: the records are stored and the last result is left out.
	TooFew
	// Overloaded: every batch is rejected.
	Overloaded
	// Partly: every second batch is rejected, the others are stored.
	Partly
	// Unknown: the broker says that it does not know the topic.
	Unknown
	// Bad: the broker calls the request bad.
	Bad
)

// Fleet is a deployment of brokers.
type Fleet struct {
	opt   Options
	store *store

	mu      sync.Mutex
	brokers map[string]*Broker
	members []string
	plan    map[string]map[uint32]string
	leases  map[lot]lease
}

// lot is a partition of a topic.
type lot struct {
	topic string
	vp    uint32
}

// lease is who may write a partition. Until freeAt nobody else may; zero is
// as long as the holder renews it.
type lease struct {
	holder string
	freeAt time.Time
}

// Broker is one running broker.
type Broker struct {
	fleet   *Fleet
	id      string
	address string
	server  *grpc.Server
	ended   chan struct{}
}

// New makes a deployment without brokers.
func New(opt Options) *Fleet {
	if opt.FlushDelay <= 0 {
		opt.FlushDelay = 10 * time.Millisecond
	}
	if opt.OutOfRange == blobstreampb.ProduceStatus_PRODUCE_STATUS_OK {
		opt.OutOfRange = blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED
	}
	if opt.MaxRequest <= 0 {
		opt.MaxRequest = 16 << 20
	}
	return &Fleet{opt: opt, store: newStore(), brokers: map[string]*Broker{}, leases: map[lot]lease{}}
}

// Start starts a broker on loopback. It serves once it is among the members.
// An address that is not empty is taken again, as a restart does. Nobody else
// gets it as long as the fleet is in use.
func (f *Fleet) Start(id, address string) (*Broker, error) {
	if address == "" {
		port, err := loopback.Reserve()
		if err != nil {
			return nil, fmt.Errorf("start broker %s: %w", id, err)
		}
		runtime.AddCleanup(f, func(p *loopback.Port) { _ = p.Close() }, port)
		address = port.Address()
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start broker %s: %w", id, err)
	}
	b := &Broker{
		fleet: f, id: id, address: listener.Addr().String(), ended: make(chan struct{}),
		server: grpc.NewServer(grpc.MaxRecvMsgSize(f.opt.MaxRequest), grpc.MaxSendMsgSize(64<<20)),
	}
	blobstreampb.RegisterBrokerServiceServer(b.server, &service{broker: b})
	f.mu.Lock()
	f.brokers[id] = b
	f.mu.Unlock()
	go func() {
		defer close(b.ended)
		_ = b.server.Serve(listener) // it ends by Crash
	}()
	return b, nil
}

// ID is the broker's node id, Address its host:port.
func (b *Broker) ID() string { return b.id }

// Address is the broker's host:port.
func (b *Broker) Address() string { return b.address }

// Crash ends the broker in the middle of everything. Its leases stay for
// their time.
func (b *Broker) Crash() {
	b.server.Stop()
	<-b.ended
	f := b.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.brokers[b.id] == b {
		delete(f.brokers, b.id)
	}
	for l, held := range f.leases {
		if held.holder == b.id && held.freeAt.IsZero() {
			f.leases[l] = lease{b.id, time.Now().Add(f.opt.LeaseTime)}
		}
	}
}

// SetMembers tells the brokers who belongs to the deployment. Partitions that
// move stay with their old owner for the drain delay.
func (f *Fleet) SetMembers(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = slices.Sorted(slices.Values(ids))
	f.plan = owners(f.opt.Topics, f.opt.Writer, f.members)
	for l, held := range f.leases {
		if f.plan[l.topic][l.vp] != held.holder && held.freeAt.IsZero() {
			f.leases[l] = lease{held.holder, time.Now().Add(f.opt.DrainDelay)}
		}
	}
}

// Owner is the broker that the deployment's own plan gives a partition to.
func (f *Fleet) Owner(topic string, vp uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan[topic][vp]
}

// Close ends all brokers.
func (f *Fleet) Close() {
	f.mu.Lock()
	brokers := slices.Collect(maps.Values(f.brokers))
	f.mu.Unlock()
	for _, b := range brokers {
		b.Crash()
	}
}

// admit decides whether a broker may write to a partition now.
func (f *Fleet) admit(id string, batch *blobstreampb.ProduceBatchRequest) (blobstreampb.ProduceStatus, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.opt.Topics, func(t Topic) bool { return t.Name == batch.Topic })
	if i < 0 {
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_UNKNOWN_TOPIC, "no topic " + batch.Topic
	}
	if t := f.opt.Topics[i]; uint64(batch.VirtualPartitionId) >= uint64(t.Partitions)*uint64(t.Writers) {
		return f.opt.OutOfRange, "partition out of range"
	}
	if len(batch.Records) == 0 {
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_BAD_REQUEST, "empty batch"
	}
	if owner := f.plan[batch.Topic][batch.VirtualPartitionId]; owner != id {
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_NOT_LEASE_HOLDER, "not planned to own the partition"
	}
	l := lot{batch.Topic, batch.VirtualPartitionId}
	held := f.leases[l]
	if held.holder != "" && held.holder != id && (held.freeAt.IsZero() || time.Now().Before(held.freeAt)) {
		return blobstreampb.ProduceStatus_PRODUCE_STATUS_NOT_LEASE_HOLDER, "the lease is held by " + held.holder
	}
	f.leases[l] = lease{holder: id}
	return blobstreampb.ProduceStatus_PRODUCE_STATUS_OK, ""
}
