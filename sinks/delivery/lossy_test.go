package delivery

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/envelope"
	"celldexport/sinks"
)

// lossy is a world of real records with two sinks: one takes everything, the
// place of the other refuses records for good, is away at times and lets
// answers be lost.
type lossy struct {
	t        *testing.T
	dir      string
	fs       FS
	r        *rig
	one, two *lossySink
	alone    bool   // the second is not in the settings
	spooled  uint64 // the last unit in the spool at the start

	cells map[int]*lossyCell
	// absences is how often streams may have fallen behind in the second.
	absences int
}

// lossyCell is a stream as its cell has it.
type lossyCell struct {
	n           int
	epoch, txid uint64
	units       int    // of this epoch
	next        uint64 // position that is no unit
	bases       int    // whole snapshots spooled for the second sink
	tables      map[string]map[int64]int64
}

var lossyTables = []string{"a", "b", "c"}

// delivered is a record that a sink stored, or that its place refused. Sent
// again it is the same one.
type delivered struct {
	seq     uint64
	index   int64
	rec     *envelope.Record
	raw     string
	refused bool
}

// lossySink has every record once, in the order of the first answers.
type lossySink struct {
	t      *testing.T
	name   string
	batch  int
	refuse func(seq uint64, r *envelope.Record) bool
	down   atomic.Bool
	deaf   atomic.Bool // every third answer is lost
	acks   int

	mu   sync.Mutex
	list []delivered
	seen map[string]int
}

func newLossySink(t *testing.T, name string, refuse func(uint64, *envelope.Record) bool) *lossySink {
	return &lossySink{t: t, name: name, batch: 1, refuse: refuse, seen: map[string]int{}}
}

// refuseNone is the place that takes everything.
func refuseNone(uint64, *envelope.Record) bool { return false }

// having is a sink that goes on in another life of the same place.
func (s *lossySink) having(t *testing.T, list []delivered) *lossySink {
	to := newLossySink(t, s.name, s.refuse)
	to.batch = s.batch
	for _, d := range list {
		to.note(d)
	}
	return to
}

func (s *lossySink) note(d delivered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprint(d.seq, " ", d.index)
	if at, ok := s.seen[id]; ok {
		if old := s.list[at]; old.raw != d.raw || old.refused != d.refused {
			s.t.Errorf("record %d of entry %d was sent again as another:\n%s\n%s", d.index, d.seq, old.raw, d.raw)
		}
		return
	}
	s.seen[id] = len(s.list)
	s.list = append(s.list, d)
}

func (s *lossySink) all() []delivered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func (s *lossySink) Name() string { return s.name }

func (s *lossySink) Run(ctx context.Context, q sinks.Queue) error {
	for {
		var deadline time.Time
		seq, n := uint64(0), 0
		for n < s.batch {
			e, err := q.Next(ctx, deadline)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if e == nil {
				break
			}
			if s.down.Load() {
				return errors.New("the place is gone")
			}
			deadline = time.Now().Add(time.Second)
			n, seq = n+1, e.Seq()
			if err := s.take(q, e); err != nil {
				return err
			}
		}
		if n == 0 {
			continue
		}
		if s.acks++; s.down.Load() || s.deaf.Load() && s.acks%3 == 0 {
			return errors.New("the answer is lost")
		}
		if err := q.Ack(seq); err != nil {
			return err
		}
	}
}

func (s *lossySink) take(q sinks.Queue, e sinks.Entry) error {
	index := int64(0)
	for enc, err := range e.Records() {
		if err != nil {
			return err
		}
		rec, err := enc.Decode()
		if err != nil {
			return err
		}
		d := delivered{seq: e.Seq(), index: index, rec: rec, raw: string(enc.AppendJSON(nil)), refused: s.refuse(e.Seq(), rec)}
		if d.refused {
			if err := q.Refuse(d.seq, sinks.Refusal{Record: index, Reason: "too large for the topic"}); err != nil {
				return err
			}
		}
		s.note(d)
		index++
	}
	return nil
}

// byChance refuses some of each hundred records of a kind, the same ones
// whenever they are sent.
func byChance(seed uint64, rates map[envelope.Kind]uint64) func(uint64, *envelope.Record) bool {
	return func(seq uint64, r *envelope.Record) bool {
		h := fnv.New64a()
		fmt.Fprint(h, seed, seq, r.Position, r.Body.Kind(), r.Fragment)
		switch b := r.Body.(type) {
		case *envelope.Rows:
			fmt.Fprint(h, b.Table)
		case *envelope.SnapshotRows:
			fmt.Fprint(h, b.Table)
		}
		return h.Sum64()%100 < rates[r.Body.Kind()]
	}
}

// begin starts a life.
func (w *lossy) begin() {
	w.t.Helper()
	spool, err := OpenSpool(filepath.Join(w.dir, "spool"), Options{SegmentBytes: 1 << 10, FS: w.fs, Salt: func() uint32 { return 7 }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.spooled = 0
	for e, err := range spool.Entries(0) { // before the sinks run: what they acknowledge leaves
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Unit().Form == FormUnit {
			w.spooled = max(w.spooled, e.Position().TXID)
		}
	}
	list := []sinks.Sink{w.one}
	if !w.alone {
		list = append(list, w.two)
	}
	w.r = startWith(w.t, w.dir, spool, Config{RestartMin: time.Second, RestartMax: time.Second}, list...)
}

func (w *lossy) restart(alone bool) {
	w.r.stop()
	if w.alone && !alone {
		w.absences++
	}
	w.alone = alone
	w.begin()
}

func newLossyCell(n int) *lossyCell {
	c := &lossyCell{n: n, epoch: 3, tables: map[string]map[int64]int64{}}
	for _, name := range lossyTables {
		c.tables[name] = map[int64]int64{}
	}
	return c
}

// change makes the next transaction; what it does depends on the cell and its
// number alone.
func (c *lossyCell) change(quiet bool) map[string][]envelope.RowChange {
	c.txid++
	c.units++
	rnd := rand.New(rand.NewPCG(uint64(c.n), c.txid))
	made := map[string][]envelope.RowChange{}
	for i, name := range lossyTables {
		if quiet || i > 0 && rnd.IntN(2) == 0 {
			continue
		}
		rows := c.tables[name]
		for _, id := range rnd.Perm(8)[:1+rnd.IntN(5)] {
			id, v := int64(id), rnd.Int64N(1000)
			old, ok := rows[id]
			switch {
			case ok && rnd.IntN(3) == 0:
				delete(rows, id)
				made[name] = append(made[name], lossyChange(envelope.Delete, id, old))
			case ok:
				rows[id] = v
				made[name] = append(made[name], lossyChange(envelope.Update, id, v))
			default:
				rows[id] = v
				made[name] = append(made[name], lossyChange(envelope.Insert, id, v))
			}
		}
	}
	return made
}

func lossyChange(op envelope.Op, id, v int64) envelope.RowChange {
	return envelope.RowChange{Op: op, Key: []envelope.Value{envelope.Int(id)}, Row: []envelope.Value{envelope.Int(id), envelope.Int(v)}}
}

func (c *lossyCell) entry(form Form, at envelope.Position, sink string) Unit {
	u := unit(c.n, at.TXID)
	u.Form, u.Position, u.Sink = form, at, sink
	return u
}

// aside is the next position that is no unit.
func (c *lossyCell) aside() envelope.Position {
	c.next++
	return envelope.Position{Epoch: c.epoch, TXID: c.txid, Commit: c.txid + c.next}
}

// spool writes an entry of some records.
func (w *lossy) spool(u Unit, origin envelope.Origin, bodies ...envelope.Body) uint64 {
	w.t.Helper()
	var list []envelope.Encoded
	for _, body := range bodies {
		for _, rec := range cut(envelope.Record{Envelope: envelope.Envelope{
			Stream: u.Stream, CellName: u.CellName, Position: u.Position, CommittedAt: u.CommittedAt, Node: u.Node,
			Origin: origin, Fragment: 1, Fragments: 1,
		}, Body: body}) {
			enc, err := envelope.Encode(&rec)
			if err != nil {
				w.t.Fatal(err)
			}
			list = append(list, enc)
		}
	}
	seq := mustAdd(w.t, w.r.spool, u, list...)
	syncSpool(w.t, w.r.spool)
	return seq
}

// cut makes three fragments of a record of three rows or more.
func cut(r envelope.Record) []envelope.Record {
	var changes []envelope.RowChange
	var with func([]envelope.RowChange) envelope.Body
	switch b := r.Body.(type) {
	case *envelope.Rows:
		changes, with = b.Changes, func(part []envelope.RowChange) envelope.Body {
			to := *b
			to.Changes = part
			return &to
		}
	case *envelope.SnapshotRows:
		changes, with = b.Changes, func(part []envelope.RowChange) envelope.Body {
			to := *b
			to.Changes = part
			return &to
		}
	}
	if len(changes) < 3 {
		return []envelope.Record{r}
	}
	var list []envelope.Record
	for i, part := range [][]envelope.RowChange{changes[:1], changes[1:2], changes[2:]} {
		one := r
		one.Fragment, one.Fragments, one.Body = uint32(i+1), 3, with(part)
		list = append(list, one)
	}
	return list
}

func lossyRows(table string, changes []envelope.RowChange) envelope.Rows {
	return envelope.Rows{
		TableGeneration: envelope.TableGeneration{Table: table, Generation: 1},
		Columns:         []string{"id", "v"}, KeyColumns: []string{"id"}, Changes: changes,
	}
}

// unit is a transaction of a cell.
func (w *lossy) unit(n int, quiet bool) {
	w.t.Helper()
	c := w.cells[n]
	made := c.change(quiet)
	var bodies []envelope.Body
	for _, name := range slices.Sorted(maps.Keys(made)) {
		rows := lossyRows(name, made[name])
		bodies = append(bodies, &rows)
	}
	w.spool(c.entry(FormUnit, envelope.Position{Epoch: c.epoch, TXID: c.txid, Commit: c.txid}, ""), envelope.Live, bodies...)
}

// wake begins the next epoch of a cell that has units in this one.
func (w *lossy) wake(n int) {
	w.t.Helper()
	c := w.cells[n]
	if c.units == 0 {
		return
	}
	w.spool(c.entry(FormClose, envelope.Position{Epoch: c.epoch, TXID: c.txid, Commit: c.txid}, ""), envelope.Live)
	epoch, txid := c.epoch, c.txid
	c.epoch, c.units, c.next = c.epoch+1, 0, 0
	w.link(n, &envelope.Link{StartTXID: c.txid + 1, PrevEpoch: &epoch, PrevTXID: &txid, Mode: envelope.ModeClone})
}

func (w *lossy) link(n int, body *envelope.Link) {
	w.t.Helper()
	c := w.cells[n]
	w.spool(c.entry(FormRecords, envelope.Position{Epoch: c.epoch, TXID: body.StartTXID}, ""), envelope.Live, body)
}

// rebase sends the second sink the streams that are behind in it, as the
// exporter does.
func (w *lossy) rebase() {
	w.t.Helper()
	lagging, err := w.r.engine.Lagging()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, ok := lagging[w.two.name]; !ok {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(w.cells)) {
		c := w.cells[n]
		behind, err := w.r.engine.Behind(w.two.name, testStream(n))
		if err != nil {
			w.t.Fatal(err)
		}
		if !behind || c.units == 0 {
			continue
		}
		at := c.aside()
		u := c.entry(FormRecords, at, w.two.name)
		id, bodies := fmt.Sprintf("base-%v", at), []envelope.Body{}
		end := &envelope.SnapshotEnd{SnapshotID: id, Scope: envelope.ScopeStream, Records: uint64(len(lossyTables))}
		for _, name := range lossyTables {
			var rows []envelope.RowChange
			for _, key := range slices.Sorted(maps.Keys(c.tables[name])) {
				rows = append(rows, lossyChange(envelope.Insert, key, c.tables[name][key]))
			}
			table := lossyRows(name, rows)
			bodies = append(bodies, &envelope.Schema{TableGeneration: table.TableGeneration, SQL: "CREATE TABLE " + name + "(id INTEGER PRIMARY KEY, v)"},
				&envelope.SnapshotRows{SnapshotID: id, Rows: table})
			end.Tables = append(end.Tables, table.TableGeneration)
		}
		seq := w.spool(u, envelope.Snapshot, append(bodies, end)...)
		w.r.engine.Rebasing(w.two.name, u.Stream, seq)
		c.bases++
	}
}

// tell spools the gaps that are due, as the exporter does.
func (w *lossy) tell() (told int) {
	w.t.Helper()
	list, err := w.r.engine.Refusals()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		if r.Node == "" || r.CommittedAt == 0 {
			w.t.Errorf("the gap would say nothing of its origin: %+v", r)
		}
		for n, c := range w.cells {
			if testStream(n) != r.Stream {
				continue
			}
			at := r.Last
			at.Commit++
			if r.Epoch == c.epoch {
				at = c.aside()
			}
			u := c.entry(FormRecords, at, r.Sink)
			u.CommittedAt, u.Node = r.CommittedAt, r.Node
			w.spool(u, envelope.Live, &envelope.Gap{From: r.From, To: r.To, Reason: r.Reason})
			w.r.engine.Reported(r)
		}
	}
	return len(list)
}

// apply lets what every sink has leave the spool.
func (w *lossy) apply() {
	w.t.Helper()
	synctest.Wait()
	if err := w.r.spool.SetApplied(w.r.spool.Last()); err != nil {
		w.t.Fatal(err)
	}
}

// room detaches the second sink when it holds up the spool.
func (w *lossy) room() (made bool) {
	w.t.Helper()
	if w.alone {
		return false // what is kept for it would be given up
	}
	w.apply()
	made, err := w.r.engine.MakeRoom(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if made {
		w.absences++
	}
	return made
}

func (w *lossy) away() bool { return !w.alone && w.r.engine.outlet(w.two.name).place.absence() != nil }

// finish lets the second sink catch up and have everything told.
func (w *lossy) finish() {
	w.t.Helper()
	w.two.down.Store(false)
	w.two.deaf.Store(false)
	for range 60 {
		time.Sleep(2 * time.Minute)
		w.apply()
		told := w.tell()
		w.rebase()
		lagging, err := w.r.engine.Lagging()
		if err != nil {
			w.t.Fatal(err)
		}
		if told > 0 || len(lagging) > 0 || w.away() {
			continue
		}
		w.r.flush(w.t)
		if list, err := w.r.engine.Refusals(); err == nil && len(list) == 0 && w.r.engine.Untold() == (Untold{}) {
			return
		}
	}
	st, err := w.r.engine.Status()
	w.t.Fatalf("it never ends: %+v, %v", st, err)
}
