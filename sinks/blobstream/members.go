package blobstream

import (
	"errors"
	"sync"

	"celldexport/sinks/blobstream/route"
)

type broker = route.Broker

// members are the brokers as known now.
type members struct {
	shape route.Shape
	// changed is told the addresses that are left.
	changed func(addresses map[string]bool)

	mu   sync.Mutex
	plan *route.Plan
	next chan struct{}
}

func newMembers(shape route.Shape) *members {
	return &members{shape: shape, next: make(chan struct{})}
}

// set replaces the brokers and wakes who waits for a change.
func (m *members) set(list []broker) {
	plan := route.NewPlan(m.shape, list)
	m.mu.Lock()
	m.plan = plan
	close(m.next)
	m.next = make(chan struct{})
	m.mu.Unlock()
	if m.changed == nil {
		return
	}
	addresses := make(map[string]bool, len(list))
	for _, b := range plan.Brokers() {
		addresses[b.Address] = true
	}
	m.changed(addresses)
}

var (
	errUnknownBrokers = errors.New("the brokers are not known yet")
	errNoBroker       = errors.New("no broker is ready")
)

// owner is the broker of a partition; the channel is closed when brokers
// change after that.
func (m *members) owner(partition uint32) (broker, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plan == nil {
		return broker{}, m.next, errUnknownBrokers
	}
	b, ok := m.plan.Owner(partition)
	if !ok {
		return broker{}, m.next, errNoBroker
	}
	return b, m.next, nil
}
