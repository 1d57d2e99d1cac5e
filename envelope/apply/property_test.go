package apply_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"celldexport/envelope"
	"celldexport/envelope/apply"
)

// genRecord draws a whole record from a small world, so that records bear on
// each other in every way, sensible or not.
func genRecord() *rapid.Generator[*envelope.Record] {
	small := rapid.Uint64Range(1, 3)
	position := rapid.Custom(func(t *rapid.T) envelope.Position {
		return at(small.Draw(t, "epoch"), small.Draw(t, "txid"), small.Draw(t, "commit"))
	})
	table := rapid.Custom(func(t *rapid.T) envelope.TableGeneration {
		return tg(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "table"), rapid.Uint64Range(1, 2).Draw(t, "generation"))
	})
	change := rapid.Custom(func(t *rapid.T) string {
		key := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "key")
		return rapid.SampledFrom([]string{"I", "U", "D"}).Draw(t, "op") + " " + key + " " + fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "value"))
	})
	list := rapid.SliceOfN(change, 0, 4)
	optional := rapid.Ptr(small, true)
	id := rapid.SampledFrom([]string{"s", "r"})
	bodies := []*rapid.Generator[envelope.Body]{
		rapid.Custom(func(t *rapid.T) envelope.Body { return rowsBody(table.Draw(t, "of"), list.Draw(t, "rows")...) }),
		rapid.Custom(func(t *rapid.T) envelope.Body { return rowsBody(table.Draw(t, "of"), list.Draw(t, "rows")...) }),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return snapBody(id.Draw(t, "id"), table.Draw(t, "of"), list.Draw(t, "rows")...)
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			scope := rapid.SampledFrom([]envelope.Scope{envelope.ScopeStream, envelope.ScopeTables}).Draw(t, "scope")
			return endBody(id.Draw(t, "id"), scope, rapid.Uint64Range(0, 2).Draw(t, "records"), rapid.SliceOfN(table, 0, 2).Draw(t, "tables")...)
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			s := schemaBody(table.Draw(t, "of"))
			s.Dropped = rapid.Bool().Draw(t, "dropped")
			if rapid.Bool().Draw(t, "renamed") {
				s.RenamedFrom = ptr("a")
			}
			return s
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return &envelope.Link{PrevEpoch: optional.Draw(t, "epoch"), PrevTXID: optional.Draw(t, "txid"), Mode: envelope.ModePaged}
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return &envelope.Recovered{Session: "n/1", Head: position.Draw(t, "head"), Loss: rapid.Bool().Draw(t, "loss")}
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return &envelope.Deleted{TargetFacet: rapid.SampledFrom([]string{"", "", "facets/aa"}).Draw(t, "target"), ThroughIncarnation: optional.Draw(t, "through"), Subtree: rapid.Bool().Draw(t, "subtree")}
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			w := &envelope.Watermark{Through: position.Draw(t, "through"), Commits: rapid.Uint64Range(0, 2).Draw(t, "commits"), Records: rapid.Uint64Range(0, 2).Draw(t, "records")}
			if rapid.Bool().Draw(t, "chained") {
				w.From = ptr(position.Draw(t, "from"))
			}
			return w
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return &envelope.Bulk{Tables: rapid.SliceOfN(table, 0, 2).Draw(t, "tables")}
		}),
		rapid.Custom(func(t *rapid.T) envelope.Body {
			return &envelope.Gap{To: position.Draw(t, "to"), Reason: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "reason")}
		}),
	}
	streams := []envelope.Stream{root, root, root, withFacet(root, "", 1), withFacet(root, "facets/aa", 2), withFacet(root, "facets/aa/facets/bb", 1), {Class: root.Class, Cell: root.Cell}}
	return rapid.Custom(func(t *rapid.T) *envelope.Record {
		r := rec(position.Draw(t, "position"), rapid.OneOf(bodies...).Draw(t, "body"), on(rapid.SampledFrom(streams).Draw(t, "stream")))
		r.Origin = rapid.SampledFrom([]envelope.Origin{envelope.Live, envelope.Live, envelope.Snapshot, envelope.Repair}).Draw(t, "origin")
		if w, ok := r.Body.(*envelope.Watermark); ok {
			r.Position = w.Through
		}
		return r
	})
}

// fragmented cuts a record with rows at random places; others stay whole.
func fragmented(t *rapid.T, r *envelope.Record) []*envelope.Record {
	var rows *envelope.Rows
	switch b := r.Body.(type) {
	case *envelope.Rows:
		rows = b
	case *envelope.SnapshotRows:
		rows = &b.Rows
	}
	if rows == nil || len(rows.Changes) < 2 {
		return []*envelope.Record{r}
	}
	var parts []*envelope.Record
	for rest := rows.Changes; len(rest) > 0; {
		n := rapid.IntRange(1, len(rest)).Draw(t, "rows of a fragment")
		part, some := *r, *rows
		some.Changes, rest = rest[:n], rest[n:]
		part.Body = &some
		if b, ok := r.Body.(*envelope.SnapshotRows); ok {
			part.Body = &envelope.SnapshotRows{SnapshotID: b.SnapshotID, Rows: some}
		}
		parts = append(parts, &part)
	}
	for i, p := range parts {
		p.Fragment, p.Fragments = uint32(i+1), uint32(len(parts))
	}
	return parts
}

// arrive brings records in another order, in fragments, and repeatedly.
func arrive(t *rapid.T, records []*envelope.Record) []*envelope.Record {
	var parts []*envelope.Record
	for _, r := range records {
		parts = append(parts, fragmented(t, r)...)
	}
	parts = rapid.Permutation(parts).Draw(t, "order")
	for _, again := range rapid.SliceOfN(rapid.SampledFrom(parts), 0, 10).Draw(t, "again") {
		parts = slices.Insert(parts, rapid.IntRange(0, len(parts)).Draw(t, "place"), again)
	}
	return parts
}

// The state is a function of the set of records: whatever they are, neither
// order nor repetition nor fragments change anything that can be asked.
func TestStateIsOfTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(genRecord(), 1, 25).Draw(t, "records")
		// Copies of one record are equal; two that only look like one are
		// the subject of the next test.
		seen := map[envelope.Key]bool{}
		records = slices.DeleteFunc(records, func(r *envelope.Record) bool {
			key := r.Key()
			again := seen[key]
			seen[key] = true
			return again
		})
		want := observe(t, build(t, records...))
		if got := observe(t, build(t, arrive(t, records)...)); got != want {
			t.Fatalf("in another order the state is\n%s\nwant\n%s", got, want)
		}
	})
}

// Even records that contradict each other under one key give one state.
func TestContradictionsAreDecidedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(genRecord(), 1, 25).Draw(t, "records")
		want := observe(t, build(t, records...))
		order := rapid.Permutation(records).Draw(t, "order")
		if got := observe(t, build(t, order...)); got != want {
			t.Fatalf("in another order the state is\n%s\nwant\n%s", got, want)
		}
	})
}

// Asking in between changes nothing either.
func TestAskingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(genRecord(), 1, 15).Draw(t, "records")
		s := apply.New()
		for i, r := range records {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
			if got, want := observe(t, s), observe(t, build(t, records[:i+1]...)); got != want {
				t.Fatalf("after %d records the state is\n%s\nwant\n%s", i+1, got, want)
			}
		}
	})
}

// source is a cell as a producer sees it: tables of (k, v) with generations,
// and the records that say how it changed.
type source struct {
	tables      map[string]map[string]string
	generations map[string]uint64
	records     []*envelope.Record
	txid        uint64
	count       envelope.Counter
	from        *envelope.Position
}

func (s *source) position() envelope.Position { return at(4, s.txid, s.txid) }

func (s *source) emit(body envelope.Body, origin envelope.Origin) {
	s.records = append(s.records, rec(s.position(), body, by(origin)))
}

// step makes one transaction and tells of it.
func (s *source) step(t *rapid.T) {
	s.txid++
	start := len(s.records)
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "table")
	table, exists := s.tables[name]
	switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
	case !exists:
		s.tables[name] = map[string]string{}
		s.open(t, name, nil)
	case action == 0:
		s.emit(schemaBody(tg(name, s.generations[name]), dropped), envelope.Live)
		delete(s.tables, name)
	case action == 1:
		s.open(t, name, nil) // altered
	case action == 2:
		s.rename(t, name)
	case action == 3:
		s.rebase()
	default:
		s.write(t, name, table)
	}
	for _, r := range s.records[start:] {
		if err := s.count.Add(&r.Envelope, r.Body.Kind()); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "watermark") {
		p := s.position()
		s.emit(s.count.Watermark(s.from, p), envelope.Live)
		s.from, s.count = &p, envelope.Counter{}
	}
}

// write changes rows and tells the net change.
func (s *source) write(t *rapid.T, name string, table map[string]string) {
	before := maps.Clone(table)
	for range rapid.IntRange(1, 5).Draw(t, "statements") {
		key := rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "key")
		if rapid.Bool().Draw(t, "delete") {
			delete(table, key)
		} else {
			table[key] = fmt.Sprint(rapid.IntRange(0, 999).Draw(t, "value"))
		}
	}
	var list []string
	for _, key := range []string{"k1", "k2", "k3", "k4"} {
		old, was := before[key]
		value, is := table[key]
		switch {
		case was && !is:
			list = append(list, "D "+key+" "+old)
		case !was && is:
			list = append(list, "I "+key+" "+value)
		case was && value != old:
			list = append(list, "U "+key+" "+value)
		}
	}
	if len(list) > 0 {
		s.emit(rowsBody(tg(name, s.generations[name]), list...), envelope.Live)
	}
}

// open opens a table's next generation with an inline snapshot.
func (s *source) open(t *rapid.T, name string, from *string) {
	s.generations[name]++
	g := tg(name, s.generations[name])
	s.emit(schemaBody(g, func(b *envelope.Schema) { b.RenamedFrom = from }), envelope.Live)
	id := fmt.Sprintf("ddl-%d", s.txid)
	s.emit(snapBody(id, g, s.content(name)...), envelope.Snapshot)
	s.emit(endBody(id, envelope.ScopeTables, 1, g), envelope.Snapshot)
}

func (s *source) rename(t *rapid.T, name string) {
	to := rapid.SampledFrom([]string{"d", "e"}).Draw(t, "new name")
	if s.tables[to] != nil {
		return
	}
	s.tables[to] = s.tables[name]
	delete(s.tables, name)
	s.open(t, to, &name)
}

// rebase sends the whole cell.
func (s *source) rebase() {
	id := fmt.Sprintf("base-%d", s.txid)
	var tables []envelope.TableGeneration
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		g := tg(name, s.generations[name])
		s.emit(schemaBody(g), envelope.Snapshot)
		s.emit(snapBody(id, g, s.content(name)...), envelope.Snapshot)
		tables = append(tables, g)
	}
	s.emit(endBody(id, envelope.ScopeStream, uint64(len(tables)), tables...), envelope.Snapshot)
}

func (s *source) content(name string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(s.tables[name])) {
		list = append(list, "I "+key+" "+s.tables[name][key])
	}
	return list
}

func (s *source) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		line := fmt.Sprintf("%s.%d:", name, s.generations[name])
		for _, key := range slices.Sorted(maps.Keys(s.tables[name])) {
			line += " " + key + "=" + s.tables[name][key]
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// What a consumer builds from a producer's records is the source, after every
// transaction, and certified exactly as far as the watermarks went; a record
// lost is never certified over.
func TestConsumerFollowsSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := &source{tables: map[string]map[string]string{}, generations: map[string]uint64{}}
		for range rapid.IntRange(1, 15).Draw(t, "transactions") {
			src.step(t)
			s := build(t, arrive(t, src.records)...)
			if got := content(s, root); got != src.String() {
				t.Fatalf("after %d transactions the consumer has %q, the source %q", src.txid, got, src)
			}
			got, ok := s.Certified(root)[4]
			if src.from == nil && ok || src.from != nil && got != *src.from {
				t.Fatalf("certified through %s, %v; want %v", got, ok, src.from)
			}
			if gaps, err := s.Gaps(); err != nil || len(gaps) > 0 {
				t.Fatalf("gaps %v, %v", gaps, err)
			}
		}
		if len(src.records) == 0 {
			return
		}
		lost := rapid.IntRange(0, len(src.records)-1).Draw(t, "lost")
		r := src.records[lost]
		s := build(t, slices.Delete(slices.Clone(src.records), lost, lost+1)...)
		if got, ok := s.Certified(root)[4]; ok && got.Compare(r.Position) >= 0 {
			t.Fatalf("without the %s record at %s certified through %s", r.Body.Kind(), r.Position, got)
		}
	})
}

// Records survive the way over the wire.
func TestWireChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(genRecord(), 1, 15).Draw(t, "records")
		var wire bytes.Buffer
		for _, r := range records {
			line, err := r.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			wire.Write(append(line, '\n'))
		}
		s := apply.New()
		for line := range bytes.Lines(wire.Bytes()) {
			r, err := envelope.Decode(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := observe(t, s), observe(t, build(t, records...)); got != want {
			t.Fatalf("over the wire the state is\n%s\nwant\n%s", got, want)
		}
	})
}
