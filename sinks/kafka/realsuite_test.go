//go:build cgo

package kafka

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

// proxiesVariable names the addresses at which a broker of ours says that it
// can be found, and does not listen: pairs of such a one and of where it
// listens for what comes by it, with = between.
const proxiesVariable = "BROKER_PROXIES"

// The suite that every sink passes, against Apache Kafka itself. Its stalls,
// outages and lost answers are the work of a proxy.
func TestApacheKafkaSuite(t *testing.T) {
	direct := realBrokers(t)
	var pairs []string
	if list := os.Getenv(proxiesVariable); list != "" {
		pairs = strings.Split(list, ",")
	} else {
		t.Skip("the broker of BROKERS is not one of ours: it does not send its clients to a proxy, which the suite has to stall and stop. Without BROKERS, make test-kafka starts one that does")
	}
	free := make(chan string, len(pairs))
	for _, pair := range pairs {
		free <- pair
	}
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		pair := <-free
		t.Cleanup(func() { free <- pair })
		address, broker, ok := strings.Cut(pair, "=")
		if !ok {
			t.Fatalf("%s: %q is no pair of addresses", proxiesVariable, pair)
		}
		p := &proxied{proxy: &proxy{address: address, broker: broker}, direct: direct, topic: fmt.Sprintf("suite-%x", rand.Uint64())}
		makeTopic(t, direct, p.topic, 4, nil)
		p.proxy.up(t)
		t.Cleanup(func() {
			p.proxy.behave(sinktest.Calm)
			p.proxy.down()
			p.proxy.serving.Wait()
		})
		return p
	})
}

// proxied is a topic of real brokers in the suite's hands.
type proxied struct {
	proxy  *proxy
	direct []string
	topic  string

	behavior sinktest.Behavior
}

func (p *proxied) Sink(t testing.TB, queueBytes int64) sinks.Sink {
	// However busy the machine, an answer that comes is waited for: a calm
	// place is to get no copies.
	s, err := New(Config{Brokers: []string{p.proxy.address}, Topic: p.topic, Retry: sinktest.Within, QueueBytes: queueBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *proxied) Behave(t testing.TB, b sinktest.Behavior) {
	t.Helper()
	was := p.behavior
	p.behavior = b
	if b == sinktest.Down {
		p.proxy.down()
	}
	p.proxy.behave(b)
	if was == sinktest.Down && b != sinktest.Down {
		p.proxy.up(t)
	}
	if was == sinktest.Stalled && b == sinktest.Calm {
		// What was held back is stored or not from now on, not later.
		sinktest.Eventually(t, "end of what was held back", func() bool { _, held := p.proxy.counts(); return held == 0 })
	}
}

func (p *proxied) Hits() int {
	if p.behavior == sinktest.Losing {
		lost, _ := p.proxy.counts()
		return lost
	}
	return p.proxy.Hits()
}

func (p *proxied) Read(t testing.TB) [][]byte {
	t.Helper()
	list := consumeTopic(t, p.topic, p.direct)
	for _, m := range list {
		checkMessage(t, m)
	}
	return values(list)
}
