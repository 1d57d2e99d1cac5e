package blobstream

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"celldexport/sinks/blobstream/discover"
	blobstreampb "celldexport/sinks/blobstream/proto"
	"celldexport/sinks/blobstream/route"
)

// entries makes n entries of one record for each of some cells, in turns.
func entries(n, cells int) []*given {
	var list []*given
	for i := range n {
		list = append(list, &given{seq: uint64(i + 1), stream: cell(i % cells), texts: []string{fmt.Sprint(i)}})
	}
	return list
}

// inOrder checks that every partition has its records in order, once.
func inOrder(t *testing.T, w *wire, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []int
	for vp, texts := range w.stored {
		last := -1
		for _, text := range texts {
			var i int
			fmt.Sscan(text, &i)
			if i <= last {
				t.Errorf("partition %d has %d after %d", vp, i, last)
			}
			last = i
			all = append(all, i)
		}
	}
	slices.Sort(all)
	if len(all) != n || len(slices.Compact(all)) != n {
		t.Errorf("%d records are stored, want %d", len(all), n)
	}
	if len(w.twice) > 0 {
		t.Errorf("partitions %v had two batches under way", w.twice)
	}
}

func TestBatchesWaitForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(entries(10, 3)...), newWire()
		start := time.Now()
		_, end := begin(t, Config{}, l, w)
		defer end()
		synctest.Wait()
		if w.count() != 0 {
			t.Error("records were sent before others could join them")
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if w.count() != 1 || !w.list()[0].at.Equal(start.Add(200*time.Millisecond)) || l.last() != 10 {
			t.Errorf("%d calls, acknowledged to %d", w.count(), l.last())
		}
		inOrder(t, w, 10)
	})
}

func TestFullBatchesGoAtOnce(t *testing.T) {
	for name, cfg := range map[string]Config{"by records": {BatchRecords: 5}, "by bytes": {BatchBytes: 1000}} {
		requests, most := 20, 5
		if cfg.BatchBytes > 0 {
			requests, most = 3, 8*5
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := newLine(entries(100, 1)...), newWire()
				w.took = time.Millisecond
				_, end := begin(t, cfg, l, w)
				defer end()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if got := w.count(); got < requests {
					t.Errorf("%d requests", got)
				}
				for _, c := range w.list() {
					if n := len(c.batches[0].Records); n > most {
						t.Errorf("a batch of %d records", n)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				inOrder(t, w, 100)
			})
		})
	}
}

func TestFlushSendsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(entries(3, 1)...), newWire()
		l.flush = true
		start := time.Now()
		_, end := begin(t, Config{Linger: time.Hour}, l, w)
		defer end()
		synctest.Wait()
		if l.last() != 3 || time.Since(start) != 0 {
			t.Errorf("acknowledged to %d after %v", l.last(), time.Since(start))
		}
	})
}

func TestEntriesOfMoreThanMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := &given{seq: 1, stream: cell(0)}
		for i := range 1000 {
			big.texts = append(big.texts, fmt.Sprint(i))
		}
		l, w := newLine(big, &given{seq: 2, stream: cell(0)}, &given{seq: 3, stream: cell(1), texts: []string{"1000"}}), newWire()
		w.took = 3 * time.Millisecond
		l.check = func(seq uint64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if n := len(w.stored[testShape.Partition(cell(0).Key())]); n < 1000 {
				t.Errorf("entry %d is acknowledged with %d of the first one's records stored", seq, n)
			}
		}
		_, end := begin(t, Config{QueueBytes: 20 << 10}, l, w)
		defer end()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if l.last() != 3 {
			t.Errorf("acknowledged to %d", l.last())
		}
		for _, c := range w.list() {
			if n := proto.Size(c.batches[0]); n > 11<<10 {
				t.Errorf("a batch of %d bytes, half of the memory is 10 KiB", n)
			}
		}
		inOrder(t, w, 1001)
	})
}

// statuses are what to answer one call after the other; then all is stored.
func statuses(list ...blobstreampb.ProduceStatus) func(int, string, *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
	return func(n int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
		if n <= len(list) {
			return everyBatch(r, list[n-1]), nil
		}
		return allStored(r), nil
	}
}

const (
	notHolder  = blobstreampb.ProduceStatus_PRODUCE_STATUS_NOT_LEASE_HOLDER
	unknown    = blobstreampb.ProduceStatus_PRODUCE_STATUS_UNKNOWN_TOPIC
	overloaded = blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED
	bad        = blobstreampb.ProduceStatus_PRODUCE_STATUS_BAD_REQUEST
)

// TestRetries: what a broker rejects is sent again until it takes it, after
// waits that fit the reason; nothing is refused.
func TestRetries(t *testing.T) {
	many := func(n int, s blobstreampb.ProduceStatus) []blobstreampb.ProduceStatus {
		return slices.Repeat([]blobstreampb.ProduceStatus{s}, n)
	}
	ms := func(list ...int) (waits []time.Duration) {
		for _, n := range list {
			waits = append(waits, time.Duration(n)*time.Millisecond)
		}
		return waits
	}
	cases := []struct {
		name   string
		answer func(int, string, *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error)
		waits  []time.Duration
		told   string
	}{
		{"overloaded", statuses(many(8, overloaded)...), ms(25, 50, 100, 200, 400, 800, 1000, 1000), "overloaded"},
		{"not the lease holder", statuses(many(5, notHolder)...), ms(250, 500, 1000, 2000, 2000), "node id"},
		{"unknown topic", statuses(many(7, unknown)...), ms(1000, 2000, 4000, 8000, 16000, 30000, 30000), "does not know the topic"},
		{"bad request", statuses(bad), ms(1000), "partitions and zones"},
		{"one after the other", statuses(overloaded, overloaded, notHolder, overloaded), ms(25, 50, 250, 25), "overloaded"},
		{"a status of tomorrow", statuses(99), ms(25), "answers 99"},
		{"call failed", func(n int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if n <= 2 {
				return nil, status.Error(codes.Unavailable, "gone fishing")
			}
			return allStored(r), nil
		}, ms(25, 50), "gone fishing"},
		{"not a broker", func(n int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if n <= 2 {
				return nil, status.Error(codes.Unimplemented, "404")
			}
			return allStored(r), nil
		}, ms(1000, 2000), "no blob-stream broker"},
		{"too few results", func(n int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if n == 1 {
				return &blobstreampb.ProduceBatchesResponse{}, nil
			}
			return allStored(r), nil
		}, ms(25), "another number of results"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := newLine(entries(40, 1)...), newWire()
				w.answer = c.answer
				s, end := begin(t, Config{}, l, w)
				defer end()
				time.Sleep(210 * time.Millisecond)
				synctest.Wait()
				if _, trouble := s.Report(); !strings.Contains(trouble, c.told) {
					t.Errorf("report says %q", trouble)
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				var waits []time.Duration
				for i := 1; i < len(w.list()); i++ {
					waits = append(waits, w.list()[i].at.Sub(w.list()[i-1].at))
				}
				if !reflect.DeepEqual(waits, c.waits) {
					t.Errorf("waits %v, want %v", waits, c.waits)
				}
				if state, trouble := s.Report(); trouble != "" || !strings.Contains(state, "40 records") {
					t.Errorf("afterwards %s %q", state, trouble)
				}
				if st := s.Stats(); l.last() != 40 || st.Refused != 0 || st.Records != 40 || st.Retries != int64(len(c.waits)) {
					t.Errorf("acknowledged to %d, %+v", l.last(), st)
				}
				inOrder(t, w, 40)
			})
		})
	}
}

// TestTimeouts: an answer that does not come is not waited for.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(entries(1, 1)...), newWire()
		w.took = time.Hour
		s, end := begin(t, Config{}, l, w)
		defer end()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Undelivered != 0 || w.count() < 5 {
			t.Errorf("after 29 s: %+v, %d calls", st, w.count())
		}
		time.Sleep(60 * time.Second)
		synctest.Wait()
		// Each time 30 s pass the record counts once more, and goes on.
		if st := s.Stats(); st.Undelivered != 2 || st.Refused != 0 || l.last() != 0 {
			t.Errorf("after 89 s: %+v, acknowledged to %d", st, l.last())
		}
		w.mu.Lock()
		w.took = 0
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if l.last() != 1 {
			t.Error("the record was not stored when the broker answered again")
		}
	})
}

// TestOnePartitionWaitsAlone: other partitions go on, and the acknowledgement
// waits for the oldest entry.
func TestOnePartitionWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(entries(200, 20)...), newWire()
		stuck := testShape.Partition(cell(0).Key())
		release := time.Now().Add(time.Minute)
		w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			response := allStored(r)
			for i, b := range r.Batches {
				if b.VirtualPartitionId == stuck && time.Now().Before(release) {
					response.Results[i].Status = overloaded
				}
			}
			return response, nil
		}
		s, end := begin(t, Config{}, l, w)
		defer end()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Records < 100 || l.last() != 0 {
			t.Errorf("%d records stored beside the stuck partition, acknowledged to %d", st.Records, l.last())
		}
		if state, _ := s.Report(); !strings.HasPrefix(state, "1 partitions waiting") {
			t.Errorf("state %s", state)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if l.last() != 200 {
			t.Errorf("acknowledged to %d", l.last())
		}
		inOrder(t, w, 200)
	})
}

// TestBrokersMove: who waits for a lease is woken when brokers change, and
// sends to the new owner.
func TestBrokersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &changing{lists: make(chan []broker)}
		l, w := newLine(entries(20, 1)...), newWire()
		w.answer = func(_ int, address string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if address != "b:1" {
				return everyBatch(r, notHolder), nil
			}
			return allStored(r), nil
		}
		s, end := begin(t, Config{Source: source, Linger: time.Millisecond}, l, w)
		defer end()
		time.Sleep(time.Second)
		synctest.Wait()
		if _, trouble := s.Report(); trouble != errUnknownBrokers.Error() || w.count() != 0 {
			t.Errorf("without brokers: %q, %d calls", trouble, w.count())
		}
		source.lists <- []broker{}
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if _, trouble := s.Report(); trouble != errNoBroker.Error() || w.count() != 0 {
			t.Errorf("with no broker: %q, %d calls", trouble, w.count())
		}
		source.lists <- []broker{{ID: "a", Address: "a:1"}}
		time.Sleep(10 * time.Second) // waits are 2 s now
		synctest.Wait()
		calls := w.count()
		if calls < 4 {
			t.Errorf("%d calls to the first broker", calls)
		}
		last := w.list()[calls-1].at
		time.Sleep(time.Until(last.Add(500 * time.Millisecond)))
		source.lists <- []broker{{ID: "b", Address: "b:1"}}
		changed := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		if w.count() != calls+1 || w.list()[calls].address != "b:1" || w.list()[calls].at.Sub(changed) != settling {
			t.Errorf("%d calls more, the last %v after the change", w.count()-calls, w.list()[w.count()-1].at.Sub(changed))
		}
		if l.last() != 20 {
			t.Errorf("acknowledged to %d", l.last())
		}
		inOrder(t, w, 20)
	})
}

// TestEveryBrokerGetsItsOwn: one request per broker, with the partitions of
// the plan.
func TestEveryBrokerGetsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shape := route.Shape{Topic: "celld-changes", Partitions: 64, Writers: 2, Writer: 1}
		brokers := discover.Static{{ID: "a", Address: "a:1"}, {ID: "b", Address: "b:1"}, {ID: "c", Address: "c:1"}}
		l, w := newLine(entries(500, 100)...), newWire()
		_, end := begin(t, Config{Shape: shape, Source: brokers}, l, w)
		defer end()
		time.Sleep(time.Second)
		synctest.Wait()
		plan := route.NewPlan(shape, brokers)
		if w.count() != 3 {
			t.Errorf("%d requests for three brokers", w.count())
		}
		for _, c := range w.list() {
			for _, b := range c.batches {
				if owner, _ := plan.Owner(b.VirtualPartitionId); owner.Address != c.address || b.VirtualPartitionId < 64 {
					t.Errorf("partition %d went to %s", b.VirtualPartitionId, c.address)
				}
			}
		}
		inOrder(t, w, 500)
	})
}

// TestLargeRecords: a record that fits no request is refused, what is too much
// for one broker is sent in halves, in order.
func TestLargeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := entries(64, 1)
		list[5].texts = []string{"5", strings.Repeat("x", 16<<20)}
		l, w := newLine(list...), newWire()
		w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if proto.Size(r) > 3000 {
				return nil, status.Error(codes.ResourceExhausted, "too large")
			}
			return allStored(r), nil
		}
		s, end := begin(t, Config{BatchBytes: 1 << 30}, l, w)
		defer end()
		time.Sleep(time.Minute)
		synctest.Wait()
		if refused := l.refusals(); len(refused) != 1 || refused[0].Record != 1 || !strings.Contains(refused[0].Reason, "max_record_bytes") {
			t.Errorf("refused %+v", refused)
		}
		if st := s.Stats(); l.last() != 64 || st.Refused != 1 || st.Records != 64 {
			t.Errorf("acknowledged to %d, %+v", l.last(), st)
		}
		inOrder(t, w, 64)
	})
}

// TestTooMuchTogether: batches that are too much in one request are sent each
// in its own before any is cut in halves.
func TestTooMuchTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(entries(40, 8)...), newWire()
		w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if len(r.Batches) > 1 {
				return nil, status.Error(codes.ResourceExhausted, "too large")
			}
			return allStored(r), nil
		}
		_, end := begin(t, Config{}, l, w)
		defer end()
		time.Sleep(time.Second)
		synctest.Wait()
		calls := w.list()
		if len(calls) != 1+len(calls[0].batches) || len(calls[0].batches) < 2 {
			t.Errorf("%d calls for %d batches", len(calls), len(calls[0].batches))
		}
		inOrder(t, w, 40)
	})
}

// TestCut: no batch is more than a request takes, whatever the settings say.
func TestCut(t *testing.T) {
	l := &lane{partition: 3}
	for range 30 {
		i := item{payload: make([]byte, 1<<20), at: 1}
		l.waiting = append(l.waiting, i)
		l.bytes += i.bytes()
	}
	cfg := (&Config{Shape: testShape, BatchBytes: 1 << 30}).withDefaults()
	for _, want := range []int{15, 15} {
		b := l.cut(&cfg)
		if n := proto.Size(b.message("celld-changes", b.items)); len(b.items) != want || field(n) > maxRequest || n != b.wire {
			t.Errorf("a batch of %d records takes %d bytes, %d were counted", len(b.items), n, b.wire)
		}
	}
	if l.bytes != 0 || l.waiting != nil {
		t.Errorf("%d bytes in %d records are left", l.bytes, len(l.waiting))
	}
}

// TestWireSize holds the sizes that requests are packed by to the encoder.
func TestWireSize(t *testing.T) {
	for _, size := range []int{1, 127, 128, 20000} {
		for _, at := range []int64{0, 1, 1790000000000, -1} {
			for _, vp := range []uint32{0, 5, 1 << 31} {
				b := &batch{lane: &lane{partition: vp}, wire: batchHead("topic", vp)}
				for range 3 {
					i := item{payload: make([]byte, size), at: at}
					b.items = append(b.items, i)
					b.wire += i.wireSize()
				}
				m := b.message("topic", b.items)
				if got := proto.Size(m); got != b.wire {
					t.Errorf("%d bytes at %d in %d: the batch takes %d, %d were counted", size, at, vp, got, b.wire)
				}
				if got := proto.Size(&blobstreampb.ProduceBatchesRequest{Batches: []*blobstreampb.ProduceBatchRequest{m}}); got != field(b.wire) {
					t.Errorf("the request takes %d, %d were counted", got, field(b.wire))
				}
			}
		}
	}
}

// TestBrokenEntry: an entry that cannot be read ends the run with its error.
func TestBrokenEntry(t *testing.T) {
	broken := errors.New("torn")
	l := newLine(&given{seq: 7, stream: cell(0), texts: []string{"0"}, err: broken})
	s, err := New(Config{Shape: testShape, Source: discover.Static{{ID: "a", Address: "a:1"}}, transport: newWire()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background(), l); !errors.Is(err, broken) || !strings.Contains(err.Error(), "entry 7") {
		t.Errorf("run: %v", err)
	}
}

func TestNewChecks(t *testing.T) {
	good := Config{Shape: testShape, Source: discover.Static{}}
	for name, change := range map[string]func(*Config){
		"no partitions": func(c *Config) { c.Shape.Partitions = 0 },
		"no topic":      func(c *Config) { c.Shape.Topic = "" },
		"no brokers":    func(c *Config) { c.Source = nil },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "blob-stream sink") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
