package blobstream

import (
	"errors"
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
)

var errTooLarge = status.Error(codes.ResourceExhausted, "too large")

// bulky is 64 entries of which the sixth takes a request of more than 11 MiB.
func bulky(cells int) []*given {
	list := entries(64, cells)
	list[5].texts = []string{"5" + strings.Repeat("x", 11<<20)}
	return list
}

// limited answers as a broker that takes requests up to a limit.
func limited(r *blobstreampb.ProduceBatchesRequest, limit int) (*blobstreampb.ProduceBatchesResponse, error) {
	if proto.Size(r) > limit {
		return nil, errTooLarge
	}
	return allStored(r), nil
}

// TestOneTooLarge: a record larger than what its broker takes is given up
// after the retry time, and all others are stored, in order.
func TestOneTooLarge(t *testing.T) {
	for _, cells := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			l, w := newLine(bulky(cells)...), newWire()
			w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
				return limited(r, 10<<20)
			}
			s, end := begin(t, Config{}, l, w)
			defer end()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if refused := l.refusals(); len(refused) != 0 || l.last() >= 6 {
				t.Errorf("within the retry time: %+v, acknowledged to %d", refused, l.last())
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			refused := l.refusals()
			if len(refused) != 1 || refused[0].Record != 0 {
				t.Fatalf("refused %d: %+v", len(refused), refused)
			}
			for _, want := range []string{"11534", "broker a refused it as too large", "max_record_bytes", "raise the broker's limit"} {
				if !strings.Contains(refused[0].Reason, want) {
					t.Errorf("the reason does not say %q: %s", want, refused[0].Reason)
				}
			}
			if st := s.Stats(); l.last() != 64 || st.Refused != 1 || st.Records != 63 || st.Bytes > 1<<20 || st.Bytes <= 0 {
				t.Errorf("acknowledged to %d, %+v", l.last(), st)
			}
			if state, trouble := s.Report(); trouble != "" {
				t.Errorf("report %s: %s", state, trouble)
			}
			inOrder(t, w, 63)
		})
	}
}

// TestSizeIsNotWhy: a record refused as too large is never given up while
// something else may be why, and is stored once the broker takes it.
func TestSizeIsNotWhy(t *testing.T) {
	type answer = func(n int, since time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error)
	large := func(r *blobstreampb.ProduceBatchesRequest) bool { return proto.Size(r) > 10<<20 }
	for name, test := range map[string]struct {
		hours  int
		answer answer
	}{
		"nothing passes": {6, func(_ int, _ time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			return nil, errTooLarge
		}},
		"small ones pass at times": {6, func(n int, since time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if int(since.Seconds())%25 == 0 {
				return nil, errTooLarge
			}
			return limited(r, 10<<20)
		}},
		"another answer at times": {6, func(n int, since time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if large(r) && int(since.Seconds())%20 < 3 {
				return everyBatch(r, blobstreampb.ProduceStatus_PRODUCE_STATUS_OVERLOADED), nil
			}
			return limited(r, 10<<20)
		}},
		"no answer at times": {6, func(n int, since time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if large(r) && int(since.Seconds())%20 < 3 {
				return nil, errors.New("cut off")
			}
			return limited(r, 10<<20)
		}},
		"the limit is raised in time": {0, func(n int, since time.Duration, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			return limited(r, 10<<20)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := newLine(bulky(1)...), newWire()
				began, well := time.Now(), false
				w.answer = func(n int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
					if well {
						return allStored(r), nil
					}
					return test.answer(n, time.Since(began), r)
				}
				s, end := begin(t, Config{}, l, w)
				defer end()
				time.Sleep(time.Duration(test.hours)*time.Hour + 28*time.Second)
				synctest.Wait()
				if l.last() >= 6 || len(l.refusals()) != 0 {
					t.Errorf("acknowledged to %d, refused %d", l.last(), len(l.refusals()))
				}
				if _, trouble := s.Report(); trouble == "" {
					t.Error("no trouble is reported")
				}
				w.mu.Lock()
				well = true
				w.mu.Unlock()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if st := s.Stats(); l.last() != 64 || st.Refused != 0 || st.Records != 64 {
					t.Errorf("acknowledged to %d, %+v", l.last(), st)
				}
			})
		})
	}
}

// TestLargerPasses: while one broker takes requests as large as the refused
// one, its size is not why.
func TestLargerPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(bulky(1)...), newWire()
		own := testShape.Partition(cell(0).AppendKey(nil))
		w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			if slices.ContainsFunc(r.Batches, func(b *blobstreampb.ProduceBatchRequest) bool { return b.VirtualPartitionId != own }) {
				return allStored(r), nil
			}
			return limited(r, 10<<20)
		}
		_, end := begin(t, Config{QueueBytes: 1 << 30}, l, w)
		defer end()
		other := 1
		for testShape.Partition(cell(other).AppendKey(nil)) == own {
			other++
		}
		seq := uint64(64)
		for range 40 {
			seq++
			l.put(&given{seq: seq, stream: cell(other), texts: []string{strings.Repeat("y", 12<<20)}})
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
		if refused := l.refusals(); len(refused) != 0 || l.last() >= 6 {
			t.Errorf("acknowledged to %d, refused %+v", l.last(), refused)
		}
		time.Sleep(time.Minute) // nothing as large passes any more
		synctest.Wait()
		if refused := l.refusals(); len(refused) != 1 || l.last() != seq {
			t.Errorf("acknowledged to %d, refused %+v", l.last(), refused)
		}
	})
}

// TestSizeAtAnotherBroker: each broker gets the retry time of its own.
func TestSizeAtAnotherBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLine(bulky(1)...), newWire()
		source := &changing{lists: make(chan []broker, 1)}
		source.lists <- []broker{{ID: "a", Address: "a:1"}}
		w.answer = func(_ int, address string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
			return limited(r, map[string]int{"a:1": 10 << 20, "b:1": 10 << 20, "c:1": 16 << 20}[address])
		}
		s, end := begin(t, Config{Source: source}, l, w)
		defer end()
		time.Sleep(25 * time.Second)
		source.lists <- discover.Static{{ID: "b", Address: "b:1"}}
		time.Sleep(25 * time.Second)
		source.lists <- discover.Static{{ID: "c", Address: "c:1"}}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := s.Stats(); l.last() != 64 || st.Refused != 0 || len(l.refusals()) != 0 {
			t.Errorf("acknowledged to %d, %+v", l.last(), st)
		}
		inOrder(t, w, 64)
	})
}

// TestFinalAnswers: what is final for the brokers' own producer is waited for
// here, however long, and told as trouble.
func TestFinalAnswers(t *testing.T) {
	for _, code := range []blobstreampb.ProduceStatus{
		blobstreampb.ProduceStatus_PRODUCE_STATUS_BAD_REQUEST, blobstreampb.ProduceStatus_PRODUCE_STATUS_UNKNOWN_TOPIC,
	} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := newLine(entries(40, 3)...), newWire()
				began := time.Now()
				w.answer = func(_ int, _ string, r *blobstreampb.ProduceBatchesRequest) (*blobstreampb.ProduceBatchesResponse, error) {
					if time.Since(began) < 6*time.Hour {
						return everyBatch(r, code), nil
					}
					return allStored(r), nil
				}
				s, end := begin(t, Config{}, l, w)
				defer end()
				time.Sleep(5 * time.Hour)
				synctest.Wait()
				if _, trouble := s.Report(); trouble == "" || l.last() != 0 || len(l.refusals()) != 0 {
					t.Errorf("trouble %q, acknowledged to %d, refused %d", trouble, l.last(), len(l.refusals()))
				}
				time.Sleep(time.Hour + time.Minute)
				synctest.Wait()
				if l.last() != 40 || len(l.refusals()) != 0 {
					t.Errorf("acknowledged to %d, refused %d", l.last(), len(l.refusals()))
				}
				inOrder(t, w, 40)
			})
		})
	}
}
