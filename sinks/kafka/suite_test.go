//go:build cgo

package kafka

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

func TestSuite(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		p := &brokers{port: freePort(t), dir: t.TempDir()}
		p.open(t)
		t.Cleanup(func() {
			p.Set(sinktest.Calm)
			if p.cluster != nil {
				p.cluster.Close()
			}
		})
		return p
	})
}

// brokers is a cluster in the suite's hands. While it is down it is closed; its
// directory keeps what it has.
type brokers struct {
	port    int
	dir     string
	cluster *kfake.Cluster // nil while the place is down

	losing *kfake.FaultHandle
	sinktest.Conduct
}

func (p *brokers) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *brokers) open(t testing.TB) {
	t.Helper()
	sinktest.Eventually(t, "cluster", func() bool {
		var err error
		p.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(p.port), kfake.DataDir(p.dir), kfake.SyncWrites(), kfake.SeedTopics(4, testTopic))
		if err != nil {
			t.Log(err) // the port may not be free yet
			p.cluster = nil
		}
		return err == nil
	})
	cluster := p.cluster
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if _, _, wait := p.Hit(); wait != nil {
			cluster.SleepControl(wait)
		}
		return nil, nil, false
	})
}

func (p *brokers) Sink(t testing.TB, queueBytes int64) sinks.Sink {
	// However busy the machine, an answer that comes is waited for: a calm
	// place is to get no copies.
	s, err := New(Config{Brokers: []string{p.address()}, Topic: testTopic, Retry: sinktest.Within, QueueBytes: queueBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *brokers) Behave(t testing.TB, b sinktest.Behavior) {
	t.Helper()
	p.Set(b)
	if p.losing != nil {
		p.losing.Remove()
		p.losing = nil
	}
	switch {
	case b == sinktest.Down && p.cluster != nil:
		p.cluster.Close()
		p.cluster = nil
	case b != sinktest.Down && p.cluster == nil:
		p.open(t)
	}
	if b == sinktest.Losing {
		p.losing = produceFault(p.cluster, kerr.NotEnoughReplicasAfterAppend, -1)
	}
}

func (p *brokers) Hits() int {
	if p.losing != nil {
		return int(p.losing.Hits())
	}
	return p.Conduct.Hits()
}

func (p *brokers) Read(t testing.TB) [][]byte {
	t.Helper()
	list := consume(t, []string{p.address()})
	for _, m := range list {
		checkMessage(t, m)
	}
	return values(list)
}
