// Package route decides where a record of a blob-stream topic goes: its key
// chooses the partition, and a plan that producers and brokers work out alike,
// without asking one another, chooses the broker of each partition.
package route

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// MaxPartitions bounds the partitions of one writer: a plan looks at every
// one of them for each change of the brokers.
const MaxPartitions = 1 << 20

// Shape is how a topic is cut. All its producers, brokers and consumers have
// to agree on it.
type Shape struct {
	Topic string
	// Partitions is how many each writer has, Writers how many writers there
	// are, Writer which one this producer is, from 0.
	Partitions, Writers, Writer uint32
}

// Check reports a shape that no topic can have.
func (s Shape) Check() error {
	switch {
	case s.Topic == "":
		return errors.New("no topic")
	case s.Partitions == 0:
		return errors.New("no partitions")
	case s.Partitions > MaxPartitions:
		return fmt.Errorf("%d partitions, at most %d", s.Partitions, MaxPartitions)
	case s.Writers == 0 || s.Writer >= s.Writers:
		return fmt.Errorf("writer %d of %d", s.Writer, s.Writers)
	case uint64(s.Partitions)*uint64(s.Writers) > math.MaxUint32:
		return fmt.Errorf("%d partitions of %d writers do not fit 32 bits", s.Partitions, s.Writers)
	}
	return nil
}

// Partition is the virtual partition of a key: the writer's own among those
// that the hash leaves to choose.
func (s Shape) Partition(key []byte) uint32 {
	return s.first() + uint32(KeyHash(key)%uint64(s.Partitions))
}

// first is the writer's first virtual partition.
func (s Shape) first() uint32 { return s.Writer * s.Partitions }

// Broker is one member of a broker deployment. ID is the id that the broker
// itself was given: plans are made of ids, so one that differs sends records
// where they are rejected.
type Broker struct {
	ID string
	// Address is host:port.
	Address string
}

// Plan is which broker owns each partition of a writer.
type Plan struct {
	first   uint32
	brokers []Broker
	owners  []uint16
}

// NewPlan distributes the partitions of the shape's topic: one after the
// other, each to the broker that wants it most of those that have the fewest.
// It holds for brokers that serve this topic alone. The order of brokers does
// not matter; of several with one id the first by address counts.
func NewPlan(shape Shape, brokers []Broker) *Plan {
	list := slices.SortedFunc(slices.Values(brokers), func(a, b Broker) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address, b.Address))
	})
	list = slices.CompactFunc(list, func(a, b Broker) bool { return a.ID == b.ID })
	if len(list) > math.MaxUint16 {
		list = list[:math.MaxUint16]
	}
	p := &Plan{first: shape.first(), brokers: list}
	if len(list) == 0 {
		return p
	}
	p.owners = make([]uint16, shape.Partitions)
	load := make([]uint32, len(list))
	for i := range p.owners {
		least := slices.Min(load)
		best, most := -1, uint64(0)
		for n, b := range list {
			if load[n] != least {
				continue
			}
			// Brokers are in order of their ids: the first of equals wins.
			if s := score(shape.Topic, p.first+uint32(i), b.ID); best < 0 || s > most {
				best, most = n, s
			}
		}
		p.owners[i] = uint16(best)
		load[best]++
	}
	return p
}

// Owner is the broker of a virtual partition; false when there is none, or
// when the partition is another writer's.
func (p *Plan) Owner(partition uint32) (Broker, bool) {
	i := uint64(partition) - uint64(p.first)
	if partition < p.first || i >= uint64(len(p.owners)) {
		return Broker{}, false
	}
	return p.brokers[p.owners[i]], true
}

// Brokers are the brokers of the plan by id.
func (p *Plan) Brokers() []Broker { return p.brokers }
