//go:build cgo

package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// Librdkafka's own mock brokers answer late: records come faster than they
// are acknowledged, every report is taken, and the end comes in time also
// when a broker is gone.
func TestSlowBrokers(t *testing.T) {
	t.Parallel()
	mock, err := kafka.NewMockCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	defer mock.Close()
	if err := mock.CreateTopic(testTopic, 4, 1); err != nil {
		t.Fatal(err)
	}
	if err := mock.SetRoundtripDuration(1, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	brokers := strings.Split(mock.BootstrapServers(), ",")
	w := newWorld(t)
	w.begin(Config{Brokers: brokers, Retry: 5 * time.Second})
	const units = 4000
	for i := range 10 {
		w.Fill(i*units/10, (i+1)*units/10, 5)
	}
	w.Flush()
	if st := w.Status(); st.Dropped != 0 || st.BacklogEntries != 0 || st.Records < units {
		t.Errorf("%d records are delivered, %d dropped, %d entries wait", st.Records, st.Dropped, st.BacklogEntries)
	}
	if st := w.sink.Stats(); st.Sessions != 1 || st.Stalls != 0 {
		t.Errorf("%d sessions, %d of them stalled", st.Sessions, st.Stalls)
	}

	if err := mock.SetBrokerDown(1); err != nil {
		t.Fatal(err)
	}
	w.Fill(units, units+500, 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.Engine.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush with the broker down: %v", err)
	}
	if err := mock.SetBrokerUp(1); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if st := w.Status(); st.Dropped != 0 || st.BacklogEntries != 0 {
		t.Errorf("after the outage %d are dropped, %d entries wait", st.Dropped, st.BacklogEntries)
	}
}
