//go:build cgo

package kafka

import (
	"fmt"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// producer is a librdkafka producer whose events and logs are read until its
// end: unread reports would block everything.
type producer struct {
	*kafka.Producer
	logs    chan kafka.LogEvent
	closing chan struct{}
	readers sync.WaitGroup
}

// openProducer makes a producer. brokers replaces the bootstrap servers when
// the configuration's are not to be reached for. listen is
// given the events and returns when they end; log is called by one goroutine.
// Both are over when close returns.
func openProducer(c *conf, brokers string, listen func(<-chan kafka.Event), log func(kafka.LogEvent)) (*producer, error) {
	p := &producer{logs: make(chan kafka.LogEvent, 64), closing: make(chan struct{})}
	m := c.configMap(p.logs)
	m["bootstrap.servers"] = brokers
	var err error
	if p.Producer, err = kafka.NewProducer(&m); err != nil {
		return nil, fmt.Errorf("librdkafka refuses the properties: %s", c.redact(err.Error()))
	}
	p.readers.Go(func() { listen(p.Events()) })
	p.readers.Go(func() {
		for {
			select {
			case l := <-p.logs:
				log(l)
			case <-p.closing:
				return
			}
		}
	})
	return p, nil
}

// drainTime bounds how long a producer that ends is listened to for reports
// of what it was told to give up.
const drainTime = 2 * time.Second

// close ends the producer with whatever it holds. Reports of that come before
// it returns, unless librdkafka keeps them for longer than drainTime; then
// they count as not come.
func (p *producer) close() {
	if err := p.Purge(kafka.PurgeQueue | kafka.PurgeInFlight); err == nil {
		deadline := time.Now().Add(drainTime)
		for p.Len() > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	p.Close()
	close(p.closing)
	p.readers.Wait()
}
