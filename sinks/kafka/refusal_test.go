//go:build cgo

package kafka

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"celldexport/envelope"
	"celldexport/sinks/delivery"
	"celldexport/sinks/sinktest"
)

// refusing has brokers refuse every batch that holds a text. Producers are not
// to compress.
func refusing(c *kfake.Cluster, err *kerr.Error, text string) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1, When: func(r kmsg.Request) bool {
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, part := range topic.Partitions {
				if bytes.Contains(part.Records, []byte(text)) {
					return true
				}
			}
		}
		return false
	}})
}

// A record that brokers refuse for what it is becomes one gap, whose reason
// names the settings to look at; those that shared its batch arrive.
func TestRefusedForWhatItIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  *kerr.Error
		want []string
	}{
		{kerr.PolicyViolation, []string{"a policy of the brokers", "max.message.bytes", "cleanup.policy", "message.timestamp.before.max.ms"}},
		{kerr.InvalidRecord, []string{"as invalid", "cleanup.policy", "message.timestamp.after.max.ms", "confluent.value.schema.validation"}},
		{kerr.InvalidTimestamp, []string{"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}},
		{kerr.RecordListTooLarge, []string{"segment.bytes"}},
		{kerr.MessageTooLarge, []string{"max.message.bytes"}},
	} {
		t.Run(test.err.Message, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			refusing(c, test.err, "picked")
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, "compression.type=none")})
			w.Fill(0, 50, 5)
			w.Unit(2, 999, "picked")
			w.Fill(50, 100, 5)
			w.Flush()
			r := w.onlyRefusal()
			for _, want := range test.want {
				if !strings.Contains(r.Reason, want) {
					t.Errorf("the reason does not name %s: %s", want, r.Reason)
				}
			}
			w.Tell(r)
			w.Flush()
			checkOneGap(t, w, consume(t, c.ListenAddrs()), r)
		})
	}
}

// onlyRefusal is the one that the engine knows of, of one record.
func (w *world) onlyRefusal() delivery.Refusal {
	w.t.Helper()
	list, err := w.Engine.Refusals()
	if st := w.Status(); err != nil || len(list) != 1 || st.Dropped != 1 || w.sink.Stats().Refused != 1 {
		w.t.Fatalf("%d refusals, %v; %d records are counted as dropped, the sink refused %d; want one", len(list), err, st.Dropped, w.sink.Stats().Refused)
	}
	return list[0]
}

// row is a record of the unit behind the last one of stream n, or a fragment
// of it, which puts text under key.
func (w *world) row(n int, fragment, fragments uint32, key int64, text string) envelope.Encoded {
	w.t.Helper()
	id, k := sinktest.Stream(n), envelope.Int(key)
	at := w.Last[id]
	at.TXID, at.Commit = at.TXID+1, at.TXID+1
	e, err := envelope.Encode(&envelope.Record{
		Envelope: envelope.Envelope{
			Stream: id, Position: at, CommittedAt: 1_790_000_000_000 + int64(at.TXID), Node: "node-a", Origin: envelope.Live,
			Fragment: fragment, Fragments: fragments,
		},
		Body: &envelope.Rows{
			TableGeneration: envelope.TableGeneration{Table: "items", Generation: 1}, Columns: []string{"id", "text"}, KeyColumns: []string{"id"},
			Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{k}, Row: []envelope.Value{k, envelope.Text(text)}}},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// around is how long the next record of stream n is without its text.
func (w *world) around(n int, key int64) int {
	e := w.row(n, 1, 1, key, "")
	return len(e.AppendJSON(nil))
}

// fragmented spools the next unit of stream n as one record in fragments, each
// with a row that holds its text.
func (w *world) fragmented(n int, texts ...string) {
	w.t.Helper()
	var list []envelope.Encoded
	for i, text := range texts {
		list = append(list, w.row(n, uint32(i+1), uint32(len(texts)), int64(1000+i), text))
	}
	id, at := sinktest.Stream(n), list[0].Position
	w.Last[id] = at
	entry, err := w.Spool.Begin(delivery.Unit{
		Form: delivery.FormUnit, Stream: id, CommittedAt: list[0].CommittedAt, Node: list[0].Node, Scope: id.Cell, Position: at,
		MinTXID: at.TXID, MaxTXID: at.TXID, PageSize: 4096, Commit: 2,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list {
		if err := entry.Record(&list[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := entry.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

// Whichever fragment of a record is refused, the unit is one gap: its other
// fragments arrive, and do not make a record; watermarks count none.
func TestRefusedFragment(t *testing.T) {
	t.Parallel()
	for refused := range 3 {
		t.Run(fmt.Sprintf("%d of 3", refused+1), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			refusing(c, kerr.InvalidRecord, "picked")
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, "compression.type=none")})
			w.Fill(0, 30, 5)
			texts := []string{"first", "second", "third"}
			texts[refused] = "picked"
			w.fragmented(1, texts...)
			w.Fill(30, 60, 5)
			w.Flush()
			r := w.onlyRefusal()
			if r.Stream != sinktest.Stream(1) || r.To.TXID != 7 {
				t.Errorf("refused is %+v", r)
			}
			w.Tell(r)
			w.Flush()
			list := consume(t, c.ListenAddrs())
			w.inOrder(list)
			state := sinktest.StateOf(t, values(list))
			w.CertifiedToTheEnd(state)
			if gaps, err := state.Gaps(); err != nil || len(gaps) != 1 {
				t.Errorf("the consumer knows of %d gaps, %v", len(gaps), err)
			}
			there := map[int]bool{}
			for _, m := range list {
				if m.rec.Fragments == 3 {
					there[int(m.rec.Fragment)] = true
				}
			}
			if len(there) != 2 || there[refused+1] {
				t.Errorf("fragments %v are there, refused was %d", there, refused+1)
			}
		})
	}
}

// A client's queue that is full for a moment, with everything answered or not,
// is waited for: nothing that fits it is given up. A message fits whose value
// does.
func TestSmallQueueOfTheClient(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lines string
		send  func(w *world)
	}{
		"one message":  {"queue.buffering.max.messages=1\nlinger.ms=0", func(w *world) { w.Fill(0, 3000, 5) }},
		"few messages": {"queue.buffering.max.messages=3\nlinger.ms=0", func(w *world) { w.Fill(0, 3000, 5) }},
		"one large message": {"queue.buffering.max.kbytes=1024\nlinger.ms=0", func(w *world) {
			for i := range 60 {
				w.Unit(i%5, int64(i), strings.Repeat("x", 900_000))
			}
			w.Sync()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, test.lines)})
			test.send(w)
			w.Flush()
			if st := w.sink.Stats(); st.Refused != 0 || st.Stalls != 0 || w.Status().Dropped != 0 {
				t.Errorf("%+v", st)
			}
			list := consume(t, c.ListenAddrs())
			w.check(list)
			if copies := w.inOrder(list); copies != 0 {
				t.Errorf("%d messages were sent twice", copies)
			}
		})
	}
	t.Run("the limit", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		w := newWorld(t)
		w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, "queue.buffering.max.kbytes=20")})
		w.Fill(0, 5, 5)
		w.Logs.Wait(t, "queue.buffering.max.kbytes is less than a record may take")
		for _, over := range []int{-1, 0, 1} {
			w.Unit(2, 7, strings.Repeat("x", 20<<10+over-w.around(2, 7)))
		}
		w.Sync()
		w.Fill(5, 20, 5)
		w.Flush()
		r := w.onlyRefusal()
		if !strings.Contains(r.Reason, "a message of 20481 bytes is larger than all that the client may hold (20480)") || !strings.Contains(r.Reason, "queue.buffering.max.kbytes") {
			t.Errorf("the reason is %q", r.Reason)
		}
		w.Tell(r)
		w.Flush()
		checkOneGap(t, w, consume(t, c.ListenAddrs()), r)
	})
}

// A topic that deletes by commit times is told of, one that keeps everything or
// counts from the arrival is not.
func TestWarnsOfRetention(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		configs map[string]string
		warns   bool
	}{
		"default":       {nil, true},
		"commit times":  {map[string]string{"retention.ms": "3600000"}, true},
		"no limit":      {map[string]string{"retention.ms": "-1"}, false},
		"arrival times": {map[string]string{"retention.ms": "3600000", "message.timestamp.type": "LogAppendTime"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			if err := c.CreateTopic(testTopic, 1, test.configs); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs()})
			w.Fill(0, 1, 1)
			w.Flush()
			if got := strings.Contains(w.Logs.String(), "message.timestamp.type=LogAppendTime"); got != test.warns {
				t.Errorf("it is warned of: %v\n%s", got, w.Logs)
			}
		})
	}
}
