//go:build cgo

package kafka

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sys/unix"

	"celldexport/envelope"
	"celldexport/sinks"
	"celldexport/sinks/sinktest"
)

// benchEntry is an entry in memory.
type benchEntry struct {
	seq  uint64
	recs []envelope.Encoded
}

func (e *benchEntry) Seq() uint64                 { return e.seq }
func (e *benchEntry) Stream() envelope.Stream     { return e.recs[0].Stream }
func (e *benchEntry) Position() envelope.Position { return e.recs[0].Position }
func (e *benchEntry) Bytes() int64                { return int64(len(e.recs[0].Body)) }
func (e *benchEntry) Records() iter.Seq2[envelope.Encoded, error] {
	return func(yield func(envelope.Encoded, error) bool) {
		for _, r := range e.recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// benchQueue gives its entries and ends when the last is acknowledged.
type benchQueue struct {
	entries []benchEntry
	next    int
	done    context.CancelFunc
}

func (q *benchQueue) Next(ctx context.Context, deadline time.Time) (sinks.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if q.next < len(q.entries) {
		q.next++
		return &q.entries[q.next-1], nil
	}
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timeout = time.After(time.Until(deadline))
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timeout:
		return nil, nil
	}
}

func (q *benchQueue) Ack(seq uint64) error {
	if seq == uint64(len(q.entries)) {
		q.done()
	}
	return nil
}

func (q *benchQueue) Refuse(seq uint64, r sinks.Refusal) error {
	return fmt.Errorf("entry %d was refused: %s", seq, r.Reason)
}
func (q *benchQueue) Flush() bool           { return false }
func (q *benchQueue) Load() ([]byte, error) { return nil, nil }
func (q *benchQueue) Save([]byte) error     { return nil }

// benchEntries are units of one rows record of about 350 bytes over many
// streams.
func benchEntries(n int) []benchEntry {
	list := make([]benchEntry, n)
	for i := range list {
		id := sinktest.Stream(i % 500)
		at := envelope.Position{Epoch: 3, TXID: uint64(i/500 + 1), Commit: uint64(i/500 + 1)}
		list[i] = benchEntry{uint64(i + 1), []envelope.Encoded{{
			Envelope: envelope.Envelope{Stream: id, Position: at, CommittedAt: 1_790_000_000_000 + int64(i), Node: "node-a", Origin: envelope.Live, Fragment: 1, Fragments: 1},
			Kind:     envelope.KindRows,
			Body: fmt.Appendf(nil, `{"kind":"rows","table":"items","generation":1,"columns":["id","text"],"key_columns":["id"],"changes":[{"op":"U","key":[%d],"row":[%d,"%s"]}]}`,
				i, i, noise(60)),
		}}}
	}
	return list
}

// BenchmarkAgainstBareProducer sends the same messages through the sink and
// through a bare loop over Produce with the same client settings, to a broker
// that keeps nothing, or to those of BROKERS. ratio is the sink's time over
// the loop's, each the best of its runs; cpu-ratio is that of the processor
// time of this process.
func BenchmarkAgainstBareProducer(b *testing.B) {
	const messages = 100_000
	topic := fmt.Sprintf("bench-%x", rand.Uint64())
	brokers := benchBrokers(b, topic)
	entries := benchEntries(messages)
	cfg := Config{Brokers: brokers, Topic: topic}.withDefaults()
	ours, bare := benchBest{}, benchBest{}
	for b.Loop() {
		bare.take(func() time.Duration { return benchBare(b, &cfg, entries) })
		ours.take(func() time.Duration { return benchSink(b, cfg, entries) })
	}
	b.ReportMetric(ours.wall.Seconds()/bare.wall.Seconds(), "ratio")
	b.ReportMetric(ours.cpu.Seconds()/bare.cpu.Seconds(), "cpu-ratio")
	b.ReportMetric(messages/ours.wall.Seconds(), "msgs/s")
	b.ReportMetric(messages/bare.wall.Seconds(), "bare-msgs/s")
	b.ReportMetric(ours.cpu.Seconds()*1e6/messages, "cpu-s/M")
}

// childBroker makes this program a broker that keeps nothing, until its input
// ends: one in the process of the benchmark would take the processor from it.
const childBroker = "CELLDEXPORT_TEST_BROKER"

func serveAsBroker(topic string) error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic), kfake.BlackholeProduce())
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.ListenAddrs()[0])
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// benchBrokers are those of BROKERS, else one of our own in another process.
func benchBrokers(b *testing.B, topic string) []string {
	b.Helper()
	if os.Getenv("BROKERS") != "" {
		brokers := realBrokers(b)
		makeTopic(b, brokers, topic, 4, nil)
		return brokers
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childBroker+"="+topic)
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := child.Wait(); err != nil {
			b.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return []string{strings.TrimSpace(address)}
}

// benchBest is the best of several runs.
type benchBest struct{ wall, cpu time.Duration }

func (r *benchBest) take(run func() time.Duration) {
	runtime.GC()
	before := cpuTime()
	wall := run()
	cpu := cpuTime() - before
	if r.wall == 0 || wall < r.wall {
		r.wall = wall
	}
	if r.cpu == 0 || cpu < r.cpu {
		r.cpu = cpu
	}
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchSink(b *testing.B, cfg Config, entries []benchEntry) time.Duration {
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	q := &benchQueue{entries: entries, done: cancel}
	var began time.Time
	s.opened = func(*session) { began = time.Now() }
	var took time.Duration
	q.done = func() { took = time.Since(began); cancel() }
	if err := s.Run(ctx, q); err != nil {
		b.Fatal(err)
	}
	return took
}

func benchBare(b *testing.B, cfg *Config, entries []benchEntry) time.Duration {
	var arrived sync.WaitGroup
	arrived.Add(len(entries))
	p, err := openProducer(newConf(cfg, nil), cfg.Brokers[0], func(events <-chan kafka.Event) {
		for e := range events {
			if m, ok := e.(*kafka.Message); ok {
				if m.TopicPartition.Error != nil {
					b.Error(m.TopicPartition.Error)
				}
				arrived.Done()
			}
		}
	}, func(kafka.LogEvent) {})
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	// The messages are made before: the loop only produces.
	letters := make([]*letter, len(entries))
	for i := range entries {
		letters[i] = newLetter(cfg.Topic)
		letters[i].write(&entries[i].recs[0]).TopicPartition.Partition = kafka.PartitionAny
	}
	began := time.Now()
	topic := cfg.Topic
	if _, err := p.GetMetadata(&topic, false, 5000); err != nil {
		b.Fatal(err)
	}
	for i := range letters {
		for {
			err := p.Produce(&letters[i].message, nil)
			if err == nil {
				break
			}
			if e, ok := err.(kafka.Error); !ok || e.Code() != kafka.ErrQueueFull {
				b.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	arrived.Wait()
	return time.Since(began)
}
