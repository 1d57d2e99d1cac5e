package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/internal/objstore"
)

func TestQuietCellIsFlushedByTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		r := start(t, t.TempDir(), Config{Store: store, FlushInterval: 2 * time.Second})
		r.unit(t, 1, 1, "one")
		time.Sleep(1900 * time.Millisecond)
		if n := len(objects(t, store)); n != 0 {
			t.Fatalf("%d objects before the interval", n)
		}
		time.Sleep(200 * time.Millisecond)
		if got := objects(t, store); len(got) != 1 || count(got) != 2 {
			t.Fatalf("%d objects, %d records, want one with the link and the rows", len(got), count(got))
		}
		time.Sleep(2 * time.Second)
		got := objects(t, store)
		if len(got) != 2 || count(got) != 3 {
			t.Fatalf("%d objects, %d records, want the watermark in the second", len(got), count(got))
		}
		wantCertified(t, got, 1, 1)
		time.Sleep(30 * time.Second) // a pause, then a burst
		for txid := range uint64(500) {
			r.unit(t, 1, txid+2, "more")
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		got = objects(t, store)
		if len(got) < 3 || len(got) > 5 {
			t.Errorf("%d objects after a burst of 500 commits in a second, want one or two for it and its watermark", len(got))
		}
		wantCertified(t, got, 1, 501)
		st := r.sink.Stats()
		if int(st.Objects) != len(got) || int(st.Records) != count(got) || st.Failures != 0 {
			t.Errorf("stats %+v", st)
		}
		r.stop()
	})
}

func TestTimerCountsFromTheFirstRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		r := start(t, t.TempDir(), Config{Store: store, FlushInterval: 10 * time.Second})
		r.unit(t, 1, 1, "one")
		r.flush(t)
		before := len(objects(t, store))
		r.unit(t, 1, 2) // without records
		time.Sleep(9 * time.Second)
		r.unit(t, 1, 3, "three")
		time.Sleep(9 * time.Second)
		r.unit(t, 1, 4, "four")
		if n := len(objects(t, store)); n != before {
			t.Fatalf("%d objects, the interval counts from the first record", n-before)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := len(objects(t, store)); n != before+1 {
			t.Fatalf("%d objects after the interval", n-before)
		}
		r.stop()
	})
}

func TestFlushAcrossAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		r := start(t, t.TempDir(), Config{Store: store, FlushInterval: 5 * time.Minute})
		for txid := range uint64(12) {
			r.unit(t, 1, txid+1, "row")
			time.Sleep(7 * time.Minute)
		}
		r.flush(t)
		got := objects(t, store)
		hours := map[string]bool{}
		for _, o := range got { // objects has held the folder against the name
			hours[time.UnixMicro(o.name.Micros).UTC().Format("15")] = true
		}
		if len(hours) < 2 {
			t.Errorf("objects in hours %v, want several", hours)
		}
		wantCertified(t, got, 1, 12)
		r.stop()
	})
}

func TestSizesUnderBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewFault(objstore.NewMemory())
		release := make(chan struct{})
		store.Add(objstore.Rule{Op: objstore.OpPut, Times: 1, Wait: func(ctx context.Context, op, key string) error {
			<-release
			return nil
		}})
		most := 0
		r := start(t, t.TempDir(), Config{Store: store, FlushBytes: 100 << 10})
		txid := uint64(0)
		add := func(n int) {
			for range n {
				txid++
				r.unit(t, 1, txid, bigText(5<<10)) // 10 KiB of record
			}
			synctest.Wait()
		}
		add(10) // the first object is complete and its PUT hangs
		add(500)
		if n := store.Calls(objstore.OpPut); n != 1 {
			t.Fatalf("%d PUTs while one is in flight", n)
		}
		close(release)
		synctest.Wait()
		r.flush(t)
		got := objects(t, store)
		for _, o := range got {
			size := 0
			for _, l := range o.lines {
				size += len(l)
			}
			most = max(most, size)
		}
		if most < 7*100<<10 || most > 9*100<<10 {
			t.Errorf("the largest object holds %d bytes, want about eight times the usual", most)
		}
		if len(got) < 6 || len(got) > 60 {
			t.Errorf("%d objects for 5 MiB", len(got))
		}
		wantCertified(t, got, 1, 510)
		r.stop()
	})
}

// TestEntryLargerThanMemoryIsCut spools one unit far larger than an object
// may be.
func TestEntryLargerThanMemoryIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		r := start(t, t.TempDir(), Config{Store: store, FlushBytes: 16 << 10, QueueBytes: 128 << 10})
		texts := make([]string, 100)
		for i := range texts {
			texts[i] = bigText(4 << 10)
		}
		r.unit(t, 1, 1, texts...)
		r.unit(t, 1, 2, "end")
		r.flush(t)
		got := objects(t, store)
		if len(got) < 20 {
			t.Errorf("%d objects for 800 KiB at 32 KiB each", len(got))
		}
		for _, o := range got {
			if len(o.records) > 6 {
				t.Errorf("an object holds %d records of 8 KiB, memory for 4 is allowed", len(o.records))
			}
		}
		wantCertified(t, got, 1, 2)
		r.stop()
	})
}

func TestFailingStoreIsWaitedFor(t *testing.T) {
	boom := errors.New("503 slow down")
	for name, rule := range map[string]objstore.Rule{
		"before the write": {Op: objstore.OpPut, Skip: 1, Times: 5, Before: boom},
		"after the write":  {Op: objstore.OpPut, Skip: 1, Times: 5, After: boom},
		"refused":          {Op: objstore.OpPut, Skip: 1, Times: 5, Before: fmt.Errorf("put: %w", objstore.ErrDenied)},
		"listing at start": {Op: objstore.OpList, Times: 5, Before: boom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := objstore.NewMemory()
				store := objstore.NewFault(mem)
				store.Add(rule)
				keys := map[string]int{}
				store.Add(objstore.Rule{Op: objstore.OpPut, Wait: func(_ context.Context, _, key string) error {
					keys[key]++
					return nil
				}})
				r := start(t, t.TempDir(), Config{Store: store, FlushInterval: time.Second})
				for txid := range uint64(20) {
					r.unit(t, 1, txid+1, "row")
					time.Sleep(time.Second)
					if st := r.sink.Stats(); st.Failures == 3 {
						if state, err := r.sink.Report(); !strings.HasPrefix(state, "trying again since") || err == "" {
							t.Errorf("report %q, %q while the store fails", state, err)
						}
					}
				}
				r.flush(t)
				got := objects(t, mem)
				wantCertified(t, got, 1, 20)
				if st := r.sink.Stats(); st.Failures != 5 || st.Retrying != "" {
					t.Errorf("stats %+v, want five failures that passed", st)
				}
				if len(keys) != len(got) {
					t.Errorf("%d keys tried for %d objects: a retry took another name", len(keys), len(got))
				}
				r.stop()
			})
		})
	}
}

func TestFlushTellsWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewFault(objstore.NewMemory())
		store.Add(objstore.Rule{Op: objstore.OpPut, Before: errors.New("503 slow down")})
		r := start(t, t.TempDir(), Config{Store: store})
		r.unit(t, 1, 1, "row")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := r.engine.Flush(ctx)
		if err == nil || !strings.Contains(err.Error(), "503 slow down") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		r.stop()
	})
}

// TestRestartAtEveryPut stops the sink before and after each PUT and each
// acknowledgement, as a kill would, and goes on from there with the state and
// the bucket of that moment. The object under way keeps its name and bytes.
func TestRestartAtEveryPut(t *testing.T) {
	type moment struct {
		dir   string
		store *objstore.Memory
		keys  []string
	}
	root := t.TempDir()
	cfg := Config{FlushInterval: time.Second, FlushBytes: 4 << 10, QueueBytes: 32 << 10}
	const last = 12
	feed := func(t *testing.T, r *rig, from uint64, between func()) {
		for txid := from; txid <= last; txid++ {
			switch txid {
			case 3:
				r.unit(t, 1, txid)
			case 5: // cut into several objects
				r.unit(t, 1, txid, bigText(3000), bigText(3001), bigText(3002), bigText(3003), bigText(3004))
			default:
				r.unit(t, 1, txid, bigText(1000), "b")
			}
			synctest.Wait()
			between()
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			between()
		}
	}
	var moments []moment
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(root, "first")
		mem := objstore.NewMemory()
		store := objstore.NewFault(mem)
		look := func(context.Context, string, string) error {
			m := moment{dir: copyDir(t, dir), store: copyStore(t, mem)}
			for _, o := range objects(t, mem) {
				m.keys = append(m.keys, o.name.Key())
			}
			moments = append(moments, m)
			return nil
		}
		store.Add(objstore.Rule{Op: objstore.OpPut, Wait: look})
		hooked := cfg
		hooked.Store = &afterPut{Store: store, after: func() { look(t.Context(), "", "") }}
		r := start(t, dir, hooked)
		feed(t, r, 1, func() { look(t.Context(), "", "") })
		r.flush(t)
		wantPlaces(t, r, objects(t, mem), 1)
		r.stop()
		wantCertified(t, objects(t, mem), 1, last)
	})
	if len(moments) < 40 {
		t.Fatalf("only %d moments", len(moments))
	}
	for i, m := range moments {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour) // the clock does not go back
			again := cfg
			again.Store = m.store
			r := start(t, m.dir, again)
			saved, err := r.engine.SinkState(SinkName)
			if err != nil {
				t.Fatal(err)
			}
			state, err := DecodeState(saved)
			if err != nil {
				t.Fatal(err)
			}
			next := uint64(1)
			for e, err := range r.spool.Entries(0) {
				if err != nil {
					t.Fatal(err)
				}
				next = max(next, e.Position().TXID+1)
			}
			feed(t, r, next, func() {})
			r.flush(t)
			got := objects(t, m.store)
			wantCertified(t, got, 1, last)
			wantPlaces(t, r, got, 1)
			stored := map[string]bool{}
			seen := map[string]bool{}
			for _, o := range got {
				stored[o.name.Key()] = true
				for _, l := range o.lines {
					if seen[l] {
						t.Errorf("a record is in two objects: %.80s", l)
					}
					seen[l] = true
				}
			}
			for _, key := range append(m.keys, state.Key) {
				if key != "" && !stored[key] {
					t.Errorf("object %s of before the restart is not there", key)
				}
			}
			r.stop()
		})
		if t.Failed() {
			t.Fatalf("going on at moment %d of %d", i, len(moments))
		}
	}
}

// afterPut calls after when a PUT is done and before its answer is known.
type afterPut struct {
	objstore.Store
	after func()
}

func (a *afterPut) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts objstore.PutOptions) (objstore.Object, error) {
	obj, err := a.Store.Put(ctx, key, body, size, opts)
	a.after()
	return obj, err
}

func copyDir(t *testing.T, dir string) string {
	to, err := os.MkdirTemp(filepath.Dir(dir), "copy")
	if err == nil {
		err = os.CopyFS(to, os.DirFS(dir))
	}
	if err != nil {
		t.Error(err)
	}
	return to
}

func copyStore(t *testing.T, from objstore.Store) *objstore.Memory {
	to := objstore.NewMemory()
	for obj, err := range from.List(t.Context(), "", "") {
		if err == nil {
			var b []byte
			if b, _, err = objstore.ReadAll(t.Context(), from, obj.Key, 1<<30); err == nil {
				_, err = objstore.PutBytes(t.Context(), to, obj.Key, b, objstore.PutOptions{})
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	return to
}

func TestNamesGrowThoughTheClockDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		dir := t.TempDir()
		frozen := time.Now()
		cfg := Config{Store: store, FlushBytes: 1, Now: func() time.Time { return frozen }}
		r := start(t, dir, cfg)
		for txid := range uint64(5) {
			r.unit(t, 1, txid+1, "row")
		}
		r.flush(t)
		r.stop()
		frozen = frozen.Add(-time.Hour)
		r = start(t, dir, cfg)
		r.unit(t, 1, 6, "row")
		r.flush(t)
		r.stop()
		wantCertified(t, objects(t, store), 1, 6)
	})
}

func TestNamesGoOnFromTheBucketWithoutState(t *testing.T) {
	for _, ahead := range []time.Duration{-400 * 24 * time.Hour, -26 * time.Hour, -time.Minute, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(1000 * 24 * time.Hour)
			store := objstore.NewMemory()
			old := Name{Node: "node-a", Micros: time.Now().Add(ahead).UnixMicro(), Rand: 1}
			other := Name{Node: "node-b", Micros: old.Micros + 1e12, Rand: 1}
			for _, n := range []Name{old, other} {
				if _, err := objstore.PutBytes(t.Context(), store, n.Key(), []byte("an object"), objstore.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if got, ok, err := Newest(t.Context(), store, "node-a", time.Now()); got != old || !ok || err != nil {
				t.Errorf("newest %+v, %v, %v", got, ok, err)
			}
			r := start(t, t.TempDir(), Config{Store: store, FlushBytes: 1})
			r.unit(t, 1, 1, "row")
			r.flush(t)
			first := Name{}
			for obj := range store.List(t.Context(), Prefix+"node-a/", old.Key()) {
				first, _ = ParseName(obj.Key)
				break
			}
			if first.Micros <= old.Micros {
				t.Errorf("first name %+v is not after %+v", first, old)
			}
			r.stop()
		})
	}
}

func TestSettings(t *testing.T) {
	store := objstore.NewMemory()
	for _, cfg := range []Config{
		{Node: "a"}, {Store: store}, {Store: store, Node: "a/b"}, {Store: store, Node: ".."},
		{Store: store, Node: "a", Retention: "0d"}, {Store: store, Node: "a", Retention: "5h"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	if _, err := New(Config{Store: store, Node: "a", Retention: "30d"}); err != nil {
		t.Error(err)
	}
}

func TestNameReadsBack(t *testing.T) {
	n := Name{Node: "node-a", Micros: 1_796_000_000_000_123, Rand: 0xabc}
	const key = "export/changes/node-a/2026/11/30/00/1796000000000123-00000abc.parquet"
	if got := n.Key(); got != key {
		t.Errorf("key %q", got)
	}
	if got, ok := ParseName(key); got != n || !ok {
		t.Errorf("read back %+v, %v", got, ok)
	}
	for _, bad := range []string{
		"", key + "x", strings.Replace(key, "/00/", "/01/", 1), strings.Replace(key, "-0", "-", 1),
		strings.Replace(key, "node-a", "a/b", 1), strings.Replace(key, "1796", "-796", 1),
	} {
		if got, ok := ParseName(bad); ok {
			t.Errorf("%q read as %+v", bad, got)
		}
	}
}
