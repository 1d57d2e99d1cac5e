package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"celldexport/envelope"
	"celldexport/sinks"
)

// refusing is a sink whose place refuses some records for good. It holds what
// was stored.
type refusing struct {
	name   string
	refuse func(*envelope.Record) bool
	stored []storedRecord
}

func (r *refusing) Name() string { return r.name }

func (r *refusing) Run(ctx context.Context, q sinks.Queue) error {
	for {
		e, err := q.Next(ctx, time.Time{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		index := int64(0)
		for enc, err := range e.Records() {
			if err != nil {
				return err
			}
			rec, err := enc.Decode()
			if err != nil {
				return err
			}
			if r.refuse(rec) {
				err = q.Refuse(e.Seq(), sinks.Refusal{Record: index, Reason: "too large for the topic"})
			} else {
				r.stored = append(r.stored, storedRecord{e.Seq(), rec, string(enc.AppendJSON(nil))})
			}
			if err != nil {
				return err
			}
			index++
		}
		if err := q.Ack(e.Seq()); err != nil {
			return err
		}
	}
}

// refusalWorld is a spool with a refusing sink and one that takes everything.
type refusalWorld struct {
	t      *testing.T
	dir    string
	spool  *Spool
	picky  *refusing
	other  *refusing
	engine *Engine
	stop   func()
	// ahead is how far the clock was set forward.
	ahead atomic.Int64
}

func newRefusalWorld(t *testing.T, refuse func(*envelope.Record) bool) *refusalWorld {
	w := &refusalWorld{t: t, dir: t.TempDir()}
	w.picky = &refusing{name: "kafka", refuse: refuse}
	w.other = &refusing{name: "bucket", refuse: func(*envelope.Record) bool { return false }}
	w.begin()
	return w
}

func (w *refusalWorld) begin() {
	w.t.Helper()
	var err error
	w.spool, err = OpenSpool(filepath.Join(w.dir, "spool"), Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	w.engine, err = New(Config{Spool: w.spool, Sinks: []sinks.Sink{w.picky, w.other}, Dir: w.dir, Now: now})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.engine.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		if err := w.engine.Close(); err != nil {
			w.t.Error(err)
		}
		if err := w.spool.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *refusalWorld) flush() {
	w.t.Helper()
	syncSpool(w.t, w.spool)
	if err := w.spool.SetApplied(w.spool.Last()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if err := w.engine.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *refusalWorld) refusals() []Refusal {
	w.t.Helper()
	list, err := w.engine.Refusals()
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// tell spools the gap of a refusal as the exporter does; told says whether it
// also reports that.
func (w *refusalWorld) tell(r Refusal, report bool) {
	w.t.Helper()
	at := r.Last
	at.Commit++
	u := Unit{
		Form: FormRecords, Stream: r.Stream, CommittedAt: r.CommittedAt, Node: r.Node, Scope: r.Scope,
		Position: at, MinTXID: at.TXID, MaxTXID: at.TXID, Sink: r.Sink,
	}
	enc, err := envelope.Encode(&envelope.Record{Envelope: envelope.Envelope{
		Stream: u.Stream, Position: at, CommittedAt: u.CommittedAt, Node: u.Node, Origin: envelope.Live, Fragment: 1, Fragments: 1,
	}, Body: &envelope.Gap{From: r.From, To: r.To, Reason: r.Reason}})
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := w.spool.Begin(u)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := e.Record(&enc); err != nil {
		w.t.Fatal(err)
	}
	if _, err := e.Commit(); err != nil {
		w.t.Fatal(err)
	}
	syncSpool(w.t, w.spool)
	if report {
		w.engine.Reported(r)
	}
}

// rowsOf is a unit with one rows record per text.
func (w *refusalWorld) rows(n int, txid uint64, texts ...string) {
	w.t.Helper()
	u := unit(n, txid)
	e, err := w.spool.Begin(u)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, text := range texts {
		enc, err := envelope.Encode(&envelope.Record{Envelope: record(u, envelope.KindRows, "").Envelope, Body: rowsBody(text)})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := e.Record(&enc); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := e.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func rowsBody(text string) *envelope.Rows {
	return &envelope.Rows{
		TableGeneration: envelope.TableGeneration{Table: text, Generation: 1}, Columns: []string{"id"}, KeyColumns: []string{"id"},
		Changes: []envelope.RowChange{{Op: envelope.Insert, Key: []envelope.Value{envelope.Int(1)}, Row: []envelope.Value{envelope.Int(1)}}},
	}
}

// named reports rows of a table called name.
func named(name string) func(*envelope.Record) bool {
	return func(r *envelope.Record) bool {
		rows, ok := r.Body.(*envelope.Rows)
		return ok && rows.Table == name
	}
}

func position(txid, commit uint64) envelope.Position {
	return envelope.Position{Epoch: 3, TXID: txid, Commit: commit}
}

// What was refused is counted, held back from certificates and told once, in
// the sink that refused it only.
func TestRefusedRecordsAreHeldUntilTold(t *testing.T) {
	w := newRefusalWorld(t, named("big"))
	defer func() { w.stop() }()
	w.rows(1, 1, "a", "b")
	w.rows(1, 2, "a", "big", "c")
	w.rows(2, 1, "a")
	w.flush()

	st, err := w.engine.Status()
	if err != nil || st[0].Dropped != 1 || st[1].Dropped != 0 {
		t.Errorf("dropped %d and %d, %v, want 1 and 0", st[0].Dropped, st[1].Dropped, err)
	}
	list := w.refusals()
	want := []Refusal{{
		Sink: "kafka", Stream: testStream(1), Epoch: 3, Scope: testStream(1).Cell, From: position(1, 1), To: position(2, 2), Last: position(2, 2),
		CommittedAt: unit(1, 2).CommittedAt, Node: "node-a", Records: 1, Reason: "too large for the topic",
	}}
	if diff := cmp.Diff(want, list, cmpopts.IgnoreUnexported(Refusal{})); diff != "" {
		t.Fatal(diff)
	}
	ends := certificate(t, w.picky.stored)
	if at := ends[accountKey{testStream(1), 3}]; at.TXID >= 2 {
		t.Errorf("certified to %v over a loss that is not told", at)
	}
	if at := certificate(t, w.other.stored)[accountKey{testStream(1), 3}]; at.TXID != 2 {
		t.Errorf("the other sink is certified to %v, it has everything to 2", at)
	}

	w.tell(list[0], true)
	if again := w.refusals(); len(again) != 0 {
		t.Errorf("told and there again: %+v", again)
	}
	w.flush()
	if at := certificate(t, w.picky.stored)[accountKey{testStream(1), 3}]; at != position(2, 3) {
		t.Errorf("certified to %v, want through the gap", at)
	}
	for _, r := range w.other.stored {
		if r.rec.Body.Kind() == envelope.KindGap {
			t.Error("the other sink got the gap")
		}
	}
}

// A refusal and a gap under way survive restarts; a crash between the gap and
// its report makes no second one.
func TestRefusalsAcrossRestarts(t *testing.T) {
	w := newRefusalWorld(t, named("big"))
	defer func() { w.stop() }()
	w.rows(1, 1, "big")
	w.flush()
	w.stop()
	w.begin()
	list := w.refusals()
	if len(list) != 1 {
		t.Fatalf("%d refusals after a restart", len(list))
	}
	// The sink does not get to the gap before the next restart.
	gone := w.picky
	w.picky = &refusing{name: "kafka", refuse: gone.refuse}
	w.stop()
	w.beginIdle()
	w.tell(list[0], false)
	w.stop()
	w.picky = gone
	w.begin()
	if again := w.refusals(); len(again) != 0 {
		t.Errorf("the gap is in the spool, and asked for again: %+v", again)
	}
	w.flush()
	if at := certificate(t, w.picky.stored)[accountKey{testStream(1), 3}]; at != position(1, 2) {
		t.Errorf("certified to %v, want through the gap", at)
	}
}

// beginIdle opens spool and engine without running the sinks.
func (w *refusalWorld) beginIdle() {
	w.t.Helper()
	w.begin()
	w.stop()
	var err error
	if w.spool, err = OpenSpool(filepath.Join(w.dir, "spool"), Options{}); err != nil {
		w.t.Fatal(err)
	}
	if w.engine, err = New(Config{Spool: w.spool, Sinks: []sinks.Sink{w.picky, w.other}, Dir: w.dir}); err != nil {
		w.t.Fatal(err)
	}
	w.stop = func() {
		if err := w.engine.Close(); err != nil {
			w.t.Error(err)
		}
		if err := w.spool.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// A gap that is refused itself is asked for again after a while; a watermark
// that is refused comes again later and starts where it would have.
func TestRefusedGapAndWatermark(t *testing.T) {
	gaps, marks := 0, 0
	w := newRefusalWorld(t, func(r *envelope.Record) bool {
		switch r.Body.Kind() {
		case envelope.KindGap:
			gaps++
			return gaps == 1
		case envelope.KindWatermark:
			marks++
			return marks == 1
		}
		return named("big")(r)
	})
	defer func() { w.stop() }()
	w.rows(1, 1, "a")
	w.rows(1, 2, "big")
	w.flush()
	w.tell(w.refusals()[0], true)
	w.flush()
	if list := w.refusals(); len(list) != 0 || w.engine.Untold().Gaps != 1 {
		t.Errorf("right after the gap was refused it is asked for again: %+v; %+v are untold", list, w.engine.Untold())
	}
	w.ahead.Add(int64(retellMin))
	list := w.refusals()
	if len(list) != 1 || list[0].To != position(2, 2) {
		t.Fatalf("after the gap was refused: %+v", list)
	}
	w.tell(list[0], true)
	w.flush()
	w.flush() // the refused watermark is due after a while, or with a flush
	if at := certificate(t, w.picky.stored)[accountKey{testStream(1), 3}]; at.TXID != 2 {
		t.Errorf("certified to %v", at)
	}
	if left := w.engine.Untold(); left != (Untold{}) {
		t.Errorf("all is told and certified, but for %+v", left)
	}
	if st, err := w.engine.Status(); err != nil || st[0].Dropped != 3 {
		t.Errorf("%d dropped, %v, want the rows, a gap and a watermark", st[0].Dropped, err)
	}
}

// A refusal of a record that the sink does not hold is an error of the sink.
func TestRefuseWhatIsNotHeld(t *testing.T) {
	w := newRefusalWorld(t, named("big"))
	defer func() { w.stop() }()
	w.rows(1, 1, "a")
	w.flush()
	q := newQueue(w.engine, w.engine.outlets[0])
	for _, seq := range []uint64{1, 99} {
		if err := q.Refuse(seq, sinks.Refusal{}); err == nil {
			t.Errorf("a record of entry %d was refused, which is not held", seq)
		}
	}
}

// Whatever is refused, also whole units, every certificate is true of what the
// sink holds, and nothing refused stays untold.
func TestRefusalsAtRandom(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { refuseAtRandom(t, rand.New(rand.NewPCG(seed, 5))) })
	}
}

func refuseAtRandom(t *testing.T, random *rand.Rand) {
	var lost sync.Map
	w := newRefusalWorld(t, func(r *envelope.Record) bool {
		rows, ok := r.Body.(*envelope.Rows)
		if !ok {
			return false
		}
		_, refused := lost.Load(rows.Table)
		return refused
	})
	defer func() { w.stop() }()
	tell := func() {
		w.flush()
		for _, r := range w.refusals() {
			w.tell(r, true)
		}
	}
	txids := map[int]uint64{}
	for step := range 1 + random.IntN(14) {
		n := 1 + random.IntN(2)
		txids[n]++
		var texts []string
		for i := range random.IntN(4) {
			text := fmt.Sprintf("t%d_%d", step, i)
			if random.IntN(2) == 0 {
				lost.Store(text, true)
			}
			texts = append(texts, text)
		}
		w.rows(n, txids[n], texts...)
		switch random.IntN(4) {
		case 0:
			w.flush()
		case 1:
			tell()
		}
	}
	tell()
	tell()
	w.flush()
	if left := w.refusals(); len(left) > 0 {
		t.Fatalf("untold: %+v", left)
	}
	ends := certificate(t, w.picky.stored)
	for n, txid := range txids {
		if at := ends[accountKey{testStream(n), 3}]; at.TXID != txid {
			t.Errorf("stream %d is certified to %v, its last unit is %d", n, at, txid)
		}
	}
}
