package blobstream_test

import (
	"testing"
	"time"

	"celldexport/sinks"
	"celldexport/sinks/blobstream"
	"celldexport/sinks/blobstream/brokertest"
	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		p := &place{}
		p.fleet = newFleet(t, brokertest.Options{FlushDelay: 2 * time.Millisecond, Fault: p.fault})
		for _, id := range ids {
			p.brokers = append(p.brokers, start(t, p.fleet, id, ""))
		}
		p.fleet.SetMembers(ids...)
		t.Cleanup(func() { p.Set(sinktest.Calm) })
		return p
	})
}

var ids = []string{"broker-a", "broker-b", "broker-c"}

// place is a deployment in the suite's hands. While it is down its brokers
// have crashed.
type place struct {
	fleet   *brokertest.Fleet
	brokers discover.Static
	down    bool
	sinktest.Conduct
}

// fault is asked about every produce request.
func (p *place) fault(string, *blobstreampb.ProduceBatchesRequest) brokertest.Fault {
	n, behavior, wait := p.Hit()
	if wait != nil {
		wait()
	}
	if behavior == sinktest.Losing {
		return []brokertest.Fault{brokertest.LoseAnswer, brokertest.TooFew}[n%2]
	}
	return brokertest.None
}

func (p *place) Sink(t testing.TB, queueBytes int64) sinks.Sink {
	s, err := blobstream.New(blobstream.Config{
		Shape: shape, Source: p.brokers, QueueBytes: queueBytes, Linger: 10 * time.Millisecond,
		// However busy the machine, an answer that comes is waited for: a calm
		// place is to get no copies.
		RequestTimeout: sinktest.Within,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) Behave(t testing.TB, b sinktest.Behavior) {
	t.Helper()
	p.Set(b)
	switch {
	case b == sinktest.Down && !p.down:
		p.fleet.Close()
	case b != sinktest.Down && p.down:
		for _, at := range p.brokers {
			start(t, p.fleet, at.ID, at.Address)
		}
	}
	p.down = b == sinktest.Down
}

func (p *place) Read(t testing.TB) [][]byte {
	t.Helper()
	return read(t, p.fleet)
}
