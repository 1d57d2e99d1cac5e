package duckdb

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// TestViewsOnRandomRecords holds the views of the documentation against the
// reference consumer on records that no exporter would write together:
// snapshots that are not whole, generations in any order, deletes, renames,
// watermarks that count right and wrong, fragments that miss.
func TestViewsOnRandomRecords(t *testing.T) {
	db := openDB(t, "")
	rows, certified, gaps := 0, 0, 0
	for seed := range uint64(40) {
		traffic := newTraffic(seed)
		records := traffic.records()
		s := apply.New()
		for _, r := range records {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		load(t, db, records)
		run(t, db, "DELETE FROM export_tombstones")
		if seed%4 == 3 {
			id := traffic.stream()
			s.Tombstone(apply.Tombstone{Script: id.Script, Class: id.Class, Cell: id.Cell, Facet: facetOf(id), Incarnation: &id.Incarnation, ErasedAt: 1})
			run(t, db, "INSERT INTO export_tombstones VALUES (?, ?, ?, ?, ?)", id.Script, id.Class, id.Cell, facetOf(id), id.Incarnation)
		}
		sameState(t, db, s)
		rows, certified, gaps = rows+len(rowLines(t, s)), certified+len(certifiedLines(t, s)), gaps+len(gapLines(t, s))
		if t.Failed() {
			var all strings.Builder
			for _, r := range records {
				b, err := r.Append(nil)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&all, "%s\n", b)
			}
			t.Fatalf("seed %d:\n%s", seed, all.String())
		}
	}
	if rows < 200 || certified < 40 || gaps < 100 {
		t.Errorf("the traffic is too dull: %d rows, %d certified positions, %d gaps", rows, certified, gaps)
	}
}

// load replaces what the views see.
func load(t *testing.T, db *sql.DB, records []*envelope.Record) {
	t.Helper()
	run(t, db, "DELETE FROM loaded")
	for _, r := range records {
		e, err := envelope.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, "INSERT INTO loaded VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, epoch_ms(?::BIGINT), ?, ?, ?, ?, ?)",
			string(e.Kind), r.Stream.Script, r.Stream.Class, r.Stream.Cell, r.CellName, facetOf(r.Stream), r.Stream.Incarnation,
			r.Position.Epoch, r.Position.TXID, fmt.Sprint(r.Position.Commit), r.CommittedAt, r.Node, string(r.Origin), r.Fragment, r.Fragments, string(e.Body))
	}
}

// traffic draws records.
type traffic struct {
	*rand.Rand
	all []*envelope.Record
}

func newTraffic(seed uint64) *traffic { return &traffic{Rand: rand.New(rand.NewPCG(seed, 77))} }

// records is a set of records in any order, some twice and some in fragments
// of which one may miss.
func (x *traffic) records() []*envelope.Record {
	seen := map[envelope.Key]bool{}
	for range 10 + x.IntN(50) {
		r := &envelope.Record{Envelope: x.envelope(), Body: x.body()}
		if _, ok := r.Body.(*envelope.Watermark); ok {
			continue // they count the others
		}
		if _, ok := r.Body.(*envelope.Recovered); ok {
			r.Origin, r.Stream.Script, r.Stream.Incarnation = envelope.Live, "", 0
		}
		if !seen[r.Key()] {
			seen[r.Key()] = true
			x.all = append(x.all, r)
		}
	}
	for range x.IntN(20) {
		r := x.watermark()
		if !seen[r.Key()] {
			seen[r.Key()] = true
			x.all = append(x.all, r)
		}
	}
	var out []*envelope.Record
	for _, r := range x.all {
		out = append(out, x.split(r)...)
	}
	for range x.IntN(10) {
		out = append(out, out[x.IntN(len(out))])
	}
	x.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (x *traffic) stream() envelope.Stream {
	id := envelope.Stream{Script: "shop", Class: "Cart", Cell: "Cart:1", Incarnation: 1 + x.Uint64N(2)}
	if x.IntN(6) == 0 {
		id.Cell = "Cart:2"
	}
	switch x.IntN(6) {
	case 0:
		id.Facet = "facets/aa"
	case 1:
		id.Facet = "facets/aa/facets/bb"
	}
	return id
}

func (x *traffic) position() envelope.Position {
	p := envelope.Position{Epoch: 1 + x.Uint64N(2), TXID: x.Uint64N(6), Commit: x.Uint64N(3)}
	if x.IntN(10) == 0 {
		p.Commit = math.MaxUint64
	}
	return p
}

func (x *traffic) envelope() envelope.Envelope {
	origins := []envelope.Origin{envelope.Live, envelope.Live, envelope.Snapshot, envelope.Repair}
	return envelope.Envelope{
		Stream: x.stream(), Position: x.position(), CommittedAt: 1_790_000_000_000, Node: "node-a",
		Origin: origins[x.IntN(len(origins))], Fragment: 1, Fragments: 1,
	}
}

func (x *traffic) table() envelope.TableGeneration {
	return envelope.TableGeneration{Table: []string{"items", `odd "name"`}[x.IntN(2)], Generation: 1 + x.Uint64N(3)}
}

func (x *traffic) value() envelope.Value {
	switch x.IntN(8) {
	case 0:
		return envelope.Real(float64(x.IntN(3)))
	case 1:
		return envelope.Text([]string{"", "a\x00b", `quote " and \ 日本`, "1"}[x.IntN(4)])
	case 2:
		return envelope.Blob([]byte{0, 255, byte(x.IntN(2))})
	case 3:
		return envelope.Int(math.MinInt64 + int64(x.IntN(2)))
	case 4:
		return envelope.Real(1e300)
	default:
		return envelope.Int(int64(x.IntN(4)))
	}
}

// rows has the keys of each table two columns wide or one, as their number is.
func (x *traffic) rows(ops ...envelope.Op) envelope.Rows {
	r := envelope.Rows{TableGeneration: x.table(), Columns: []string{"k", "v"}, KeyColumns: []string{"k"}}
	for range x.IntN(5) {
		key := x.value()
		r.Changes = append(r.Changes, envelope.RowChange{
			Op: ops[x.IntN(len(ops))], Key: []envelope.Value{key}, Row: []envelope.Value{key, x.value()},
		})
	}
	return r
}

func (x *traffic) body() envelope.Body {
	switch x.IntN(26) {
	case 0:
		return &envelope.Schema{TableGeneration: x.table(), SQL: "CREATE TABLE ...", Dropped: x.IntN(3) == 0, Columns: []envelope.ColumnDef{{Name: "k", PrimaryKey: 1}, {Name: "v"}}}
	case 1:
		from := x.table().Table
		return &envelope.Schema{TableGeneration: x.table(), SQL: "CREATE TABLE ...", RenamedFrom: &from}
	case 2, 3, 4:
		return &envelope.SnapshotRows{SnapshotID: x.snapshot(), Rows: x.rows(envelope.Insert)}
	case 5, 6, 7:
		return x.snapshotEnd()
	case 8:
		return &envelope.Bulk{Tables: []envelope.TableGeneration{x.table()}}
	case 9:
		return &envelope.Gap{From: x.position(), To: x.position(), Reason: "because"}
	case 10:
		return x.link()
	case 11:
		return x.deleted()
	case 12:
		return &envelope.Recovered{Session: "n/1", Head: envelope.Position{Epoch: 1 + x.Uint64N(2), TXID: x.Uint64N(6), Commit: math.MaxUint64}, Loss: x.IntN(2) == 0, Cells: 1}
	default:
		r := x.rows(envelope.Insert, envelope.Update, envelope.Delete)
		return &r
	}
}

func (x *traffic) snapshot() string { return []string{"base-1", "ddl-1"}[x.IntN(2)] }

// snapshotEnd mostly ends a snapshot that is there.
func (x *traffic) snapshotEnd() *envelope.SnapshotEnd {
	end := &envelope.SnapshotEnd{SnapshotID: x.snapshot(), Scope: envelope.ScopeTables, Records: x.Uint64N(2)}
	if x.IntN(2) == 0 {
		end.Scope = envelope.ScopeStream
	}
	end.Tables = []envelope.TableGeneration{x.table()}
	return end
}

func (x *traffic) link() *envelope.Link {
	l := &envelope.Link{StartTXID: 1, Mode: envelope.ModeFresh}
	if x.IntN(3) > 0 {
		epoch, txid := 1+x.Uint64N(2), x.Uint64N(6)
		l.PrevEpoch, l.PrevTXID, l.Mode = &epoch, &txid, envelope.ModeClone
	}
	return l
}

func (x *traffic) deleted() *envelope.Deleted {
	d := &envelope.Deleted{}
	if x.IntN(4) == 0 {
		return d
	}
	d.TargetFacet = []string{"facets/aa", "facets/aa/facets/bb", "facets/cc"}[x.IntN(3)]
	d.Subtree = x.IntN(2) == 0
	n := 1 + x.Uint64N(2)
	switch x.IntN(3) {
	case 0:
		d.ThroughIncarnation = &n
	case 1:
		d.TargetIncarnation = &n
	}
	return d
}

// watermark mostly counts right what is there of a stream.
func (x *traffic) watermark() *envelope.Record {
	of := x.all[x.IntN(len(x.all))]
	var census envelope.Census
	for _, r := range x.all {
		if r.Stream == of.Stream {
			census.Add(&r.Envelope, r.Body.Kind())
		}
	}
	through := of.Position
	w := &envelope.Watermark{Through: through}
	for _, r := range x.all {
		mark, ok := r.Body.(*envelope.Watermark)
		if ok && r.Stream == of.Stream && mark.Through.Compare(through) < 0 && x.IntN(2) == 0 {
			w.From = &mark.Through
		}
	}
	w.Commits, w.Records = census.Between(w.From, through)
	if x.IntN(5) == 0 {
		w.Records++
	}
	env := of.Envelope
	env.Origin, env.Position = envelope.Live, through
	return &envelope.Record{Envelope: env, Body: w}
}

// split cuts a record with rows into fragments, of which one may miss.
func (x *traffic) split(r *envelope.Record) []*envelope.Record {
	var rows *envelope.Rows
	switch b := r.Body.(type) {
	case *envelope.Rows:
		rows = b
	case *envelope.SnapshotRows:
		rows = &b.Rows
	}
	if rows == nil || len(rows.Changes) < 2 || x.IntN(3) > 0 {
		return []*envelope.Record{r}
	}
	var out []*envelope.Record
	for i, change := range rows.Changes {
		part := *rows
		part.Changes = []envelope.RowChange{change}
		f := *r
		f.Fragment, f.Fragments = uint32(i+1), uint32(len(rows.Changes))
		f.Body = &part
		if s, ok := r.Body.(*envelope.SnapshotRows); ok {
			f.Body = &envelope.SnapshotRows{SnapshotID: s.SnapshotID, Rows: part}
		}
		out = append(out, &f)
	}
	if x.IntN(4) == 0 {
		out = out[1:]
	}
	return out
}
