package exporter_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/celldsim"
)

// tape is one cell whose statements go the whole way, one unit after the
// other: SQLite, an LTX file, the bucket, an exporter that starts and ends for
// each unit, Parquet, the reference consumer. After every unit the consumer's
// copy is held against SELECT.
type tape struct {
	*world
	h *host
	c *celldsim.Cell
	// odd names tables that the consumer cannot have exactly; their
	// differences are looked at by the test itself.
	odd []string
}

// newTape is a fresh cell whose database has a form of its own.
func newTape(t *testing.T, pragmas ...string) *tape {
	t.Helper()
	return newTapeOver(t, nil, pragmas...)
}

// newTapeOver is newTape over a database file that is there already.
func newTapeOver(t *testing.T, image []byte, pragmas ...string) *tape {
	t.Helper()
	w := newWorld(t, celldsim.V03)
	p := &tape{world: w, h: w.host("node-a")}
	cell := w.fleet.CellID(class, "case")
	if image != nil {
		dir := celld.EpochDir(p.h.settings.Watch, celld.Scope{Cell: cell}, 1)
		w.must(os.MkdirAll(dir, 0o755))
		w.must(os.WriteFile(filepath.Join(dir, celld.DatabaseName), image, 0o644))
	}
	var err error
	p.c, err = p.h.node.ActivateWith(t.Context(), celldsim.Activation{Cell: cell, Name: "case", Pragmas: pragmas})
	w.must(err)
	return p
}

// unit runs statements, which may hold transactions, as one unit, exports it,
// and returns what was exported for it.
func (p *tape) unit(statements ...string) []string {
	p.t.Helper()
	p.stage(statements...)
	return p.export()
}

// stage runs statements, captures them as one file and uploads it.
func (p *tape) stage(statements ...string) {
	p.t.Helper()
	for _, sql := range statements {
		if err := p.c.Exec(sql); err != nil {
			p.t.Fatalf("%.200s: %v", sql, err)
		}
	}
	_, err := p.c.Capture()
	p.must(err)
	p.must(p.c.Upload(p.t.Context()))
}

// export exports what is uploaded and returns the records at the cell's head,
// spelled short.
func (p *tape) export() []string {
	p.t.Helper()
	if left := p.h.once(); len(left) > 0 {
		p.t.Fatalf("left: %v", left)
	}
	got := p.consumer()
	for _, d := range p.differences(got) {
		p.t.Errorf("at txid %d: %s", p.c.TXID(), d)
	}
	for _, d := range got.Certified(consumer.SourceOf(p.c)) {
		p.t.Error(d)
	}
	return p.records(got, p.c.Epoch(), p.c.TXID())
}

// differences holds the copy against SELECT, without the odd tables.
func (p *tape) differences(got *consumer.Consumer) []string {
	p.t.Helper()
	diffs, err := got.Compare(p.t.Context(), consumer.SourceOf(p.c))
	p.must(err)
	return slices.DeleteFunc(diffs, func(d string) bool {
		return slices.ContainsFunc(p.odd, func(name string) bool { return strings.Contains(d, ": table "+name) })
	})
}

// records spells the records of one txid, each fragment once, in order of
// their arrival, without links and watermarks.
func (p *tape) records(got *consumer.Consumer, epoch, txid uint64) []string {
	var out []string
	for _, r := range got.Records {
		kind := r.Body.Kind()
		if r.Position.Epoch != epoch || r.Position.TXID != txid || kind == envelope.KindWatermark || kind == envelope.KindLink {
			continue
		}
		if s := spellBody(r.Body); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// wants holds the records of the last unit against expected ones.
func (p *tape) wants(got []string, want ...string) {
	p.t.Helper()
	if !slices.Equal(got, want) {
		p.t.Errorf("txid %d:\n got %q\nwant %q", p.c.TXID(), got, want)
	}
}

// table is a table as the consumer has it now.
func (p *tape) table(name string) *apply.Table {
	p.t.Helper()
	got := p.consumer()
	id, ok := got.Stream(p.c.Scope())
	if !ok {
		p.t.Fatalf("the consumer has no stream of %s", p.c.Scope())
	}
	for _, t := range got.State.Tables(id) {
		if t.Table == name {
			return t
		}
	}
	p.t.Fatalf("the consumer has no table %q", name)
	return nil
}

// rows are the rows of a table as records spell them: key and values.
func (p *tape) rows(name string) []string {
	p.t.Helper()
	var out []string
	for _, r := range p.table(name).Rows {
		out = append(out, string(envelope.AppendValues(nil, r.Key))+" "+string(envelope.AppendValues(nil, r.Values)))
	}
	return out
}

// wantRows holds the rows of a table against expected ones.
func (p *tape) wantRows(name string, want ...string) {
	p.t.Helper()
	if got := p.rows(name); !slices.Equal(got, want) {
		p.t.Errorf("table %s:\n got %q\nwant %q", name, got, want)
	}
}

// wake puts the cell to sleep and wakes it in its next epoch.
func (p *tape) wake(keepImage bool) {
	p.t.Helper()
	p.must(p.h.node.Evict(p.t.Context(), p.c.Scope(), keepImage))
	p.c = p.h.activate("case")
	p.must(p.c.Upload(p.t.Context()))
}

// ops counts the changes of a table in records spelled short.
func ops(records []string, table string) (inserts, updates, deletes int) {
	for _, r := range records {
		if name, changes, ok := strings.Cut(strings.TrimPrefix(r, "rows "), " "); ok && strings.HasPrefix(name, table+"/") && strings.HasPrefix(r, "rows ") {
			inserts += strings.Count(changes, "I")
			updates += strings.Count(changes, "U")
			deletes += strings.Count(changes, "D")
		}
	}
	return inserts, updates, deletes
}

// filler inserts n rows made of an expression over i.
func filler(table string, n int, expr string) string {
	return "INSERT INTO " + table + " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < " + itoa(n) + ") SELECT " + expr + " FROM n"
}
