//go:build cgo

package exporter_test

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/envelope"
	"celldexport/exporter/demo/broker"
	"celldexport/internal/config"
)

// door stands before a broker: shut, it ends every connection, mute, it ends
// one in place of the broker's next answer.
type door struct {
	mu         sync.Mutex
	shut, mute bool
	open       map[net.Conn]struct{}
}

func (d *door) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return doorListener{l, d}, err
}

type doorListener struct {
	net.Listener
	door *door
}

func (l doorListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.door.mu.Lock()
		shut := l.door.shut
		if !shut {
			l.door.open[c] = struct{}{}
		}
		l.door.mu.Unlock()
		if !shut {
			return doorConn{c, l.door}, nil
		}
		_ = c.Close()
	}
}

type doorConn struct {
	net.Conn
	door *door
}

// Write is the broker's answer.
func (c doorConn) Write(b []byte) (int, error) {
	c.door.mu.Lock()
	mute := c.door.mute
	c.door.mu.Unlock()
	if mute {
		return 0, errors.Join(errors.New("the answer is lost"), c.Conn.Close())
	}
	return c.Conn.Write(b)
}

func (d *door) set(shut, mute bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut, d.mute = shut, mute
	if shut {
		for c := range d.open {
			_ = c.Close()
		}
		clear(d.open)
	}
}

func addKafkaPlace(all map[string]func(t *testing.T) *place) { all[config.SinkKafka] = kafkaPlace }

const (
	placeTopic      = "celld-changes"
	placePartitions = 4
)

// kafkaPlace is a broker behind a door.
func kafkaPlace(t *testing.T) *place {
	d := &door{open: map[net.Conn]struct{}{}}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(placePartitions, placeTopic), kfake.ListenFn(d.listen))
	if err != nil {
		t.Fatal(err)
	}
	b := broker.Of(cluster, placeTopic)
	t.Cleanup(b.Close)
	return &place{
		t: t, sink: config.SinkKafka,
		use: func(s *config.Settings) { s.Kafka.Brokers = b.Addrs() },
		up:  func() { d.set(false, false) }, down: func() { d.set(true, false) }, mute: func() { d.set(false, true) },
		records: func() []*envelope.Record {
			records, err := b.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return records
		},
		stored: func() (n int) {
			for partition := range int32(placePartitions) {
				n += int(cluster.PartitionInfo(placeTopic, partition).HighWatermark)
			}
			return n
		},
	}
}
