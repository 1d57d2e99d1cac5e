package exporter_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"celldexport/internal/celldsim"
	"celldexport/internal/ledger"
	"celldexport/internal/objstore"
)

// tally counts requests to the fleet bucket by operation.
type tally struct {
	mu    sync.Mutex
	calls map[string]int
	bytes int64
}

func (y *tally) observe(op, _ string, n int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.calls == nil {
		y.calls = make(map[string]int)
	}
	y.calls[op]++
	if op == objstore.OpGet {
		y.bytes += n
	}
}

// take returns what was counted since the last time.
func (y *tally) take() (calls map[string]int, total int, bytes int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	calls, bytes = y.calls, y.bytes
	y.calls, y.bytes = nil, 0
	for _, n := range calls {
		total += n
	}
	return calls, total, bytes
}

// What the proof asks of the bucket: about one request a unit for a busy
// cell, a few for a slow one, none for one that rests.
func TestRequestsPerUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, celldsim.V03)
	a := w.host("node-a")
	y := &tally{}
	a.count = y.observe
	busy, slow := a.activate("busy"), a.activate("slow")
	w.write(busy, createItems)
	w.write(slow, createItems)
	a.run()
	a.sync()
	y.take()

	const burst = 200
	for i := range burst {
		w.must(busy.Exec(fmt.Sprintf(`INSERT INTO items VALUES('k%d',%d)`, i, i)))
		_, err := busy.Capture()
		w.must(err)
	}
	w.must(busy.Upload(t.Context()))
	a.sync()
	calls, total, bytes := y.take()
	t.Logf("busy cell: %d units, %d requests (%v), %d bytes: %.2f requests a unit", burst, total, calls, bytes, float64(total)/burst)
	if total > 2*burst {
		t.Errorf("%d requests for %d units of a busy cell", total, burst)
	}

	const singles = 10
	for i := range singles {
		w.write(slow, fmt.Sprintf(`INSERT INTO items VALUES('s%d',%d)`, i, i))
		a.sync()
	}
	calls, total, _ = y.take()
	t.Logf("slow cell: %d units in rounds of their own, %d requests (%v): %.1f a unit", singles, total, calls, float64(total)/singles)
	if total > 8*singles {
		t.Errorf("%d requests for %d units of a slow cell", total, singles)
	}

	a.rounds(20)
	if calls, total, _ := y.take(); total != 0 {
		t.Errorf("resting cells cost %d requests in 20 rounds: %v", total, calls)
	}
	a.halt()
}

// A cell that is woken again and again sends only what changed; what a wake
// costs does not grow, and neither does the ledger.
func TestWokenAgainAndAgain(t *testing.T) {
	t.Parallel()
	wakes := 40
	if s := os.Getenv("EXPORTD_WAKES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		wakes = n
	}
	w := newWorld(t, celldsim.V06)
	a := w.host("node-a")
	y := &tally{}
	a.count = y.observe
	c := a.activate("one")
	w.write(c, createItems, `INSERT INTO items SELECT 'row' || value, value FROM json_each('[1,2,3,4,5,6,7,8,9]')`)
	a.run()
	a.sync()
	key := ledger.Key(c.Scope(), "")
	type cost struct {
		requests int
		bytes    int64
		ledger   int
	}
	var costs []cost
	for i := range wakes {
		w.must(a.node.Evict(t.Context(), c.Scope(), true))
		a.sync()
		y.take()
		c = a.activate("one")
		w.write(c, fmt.Sprintf(`UPDATE items SET qty = qty + 1 WHERE sku = 'row%d'`, 1+i%9))
		a.sync()
		_, total, bytes := y.take()
		data, _, err := objstore.ReadAll(t.Context(), w.store, key, 1<<20)
		w.must(err)
		costs = append(costs, cost{total, bytes, len(data)})
	}
	a.halt()
	got := w.equal(c)
	rows := 0
	for _, r := range got.Records {
		if r.Position.Epoch > 1 {
			rows++
		}
	}
	// What a round asks twice because it came between two steps of a wake is no
	// growth: each counts as the least of ten.
	least := func(costs []cost) cost {
		low := costs[0]
		for _, c := range costs {
			low = cost{min(low.requests, c.requests), min(low.bytes, c.bytes), min(low.ledger, c.ledger)}
		}
		return low
	}
	first, last := least(costs[5:15]), least(costs[len(costs)-10:])
	t.Logf("%d wakes: %.1f records a wake, requests %d around the 10th and %d at the last, bytes %d and %d, ledger %d and %d bytes",
		wakes, float64(rows)/float64(wakes), first.requests, last.requests, first.bytes, last.bytes, first.ledger, last.ledger)
	// A link, a schema, a row change, and a watermark or two.
	if rows > 6*wakes {
		t.Errorf("%d records in %d wakes", rows, wakes)
	}
	if last.requests > first.requests+4 || last.bytes > first.bytes+4096 || last.ledger > first.ledger+64 {
		t.Errorf("the cost grows: first %+v, last %+v", first, last)
	}
}
