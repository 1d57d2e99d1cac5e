// Package duckdb holds the bucket sink's objects, and docs/duckdb.sql, against
// a reader that nobody here wrote. It is a module of its own: DuckDB is large
// and the product does not need it.
package duckdb

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/exporter/consumer"
	"celldexport/exporter/demo"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/google/go-cmp/cmp"
)

// openDB is an empty database in memory with the views of the documentation,
// over the objects of a directory ("" for none yet).
func openDB(t *testing.T, objects string) *sql.DB {
	t.Helper()
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // variables are of a connection
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if objects == "" {
		// The shape of the objects, without any.
		run(t, db, `CREATE TABLE loaded (kind VARCHAR, script VARCHAR, class VARCHAR, cell VARCHAR, cell_name VARCHAR, facet VARCHAR,
			incarnation UBIGINT, epoch UBIGINT, txid UBIGINT, "commit" UBIGINT, committed_at TIMESTAMPTZ, node VARCHAR, origin VARCHAR,
			fragment UINTEGER, fragments UINTEGER, body VARCHAR)`)
		run(t, db, strings.Replace(views(t), "FROM read_parquet(getvariable('export_path'))", "FROM loaded", 1))
		return db
	}
	run(t, db, fmt.Sprintf("SET VARIABLE export_path = '%s/**/*.parquet'", objects))
	run(t, db, views(t))
	run(t, db, "CREATE TABLE loaded AS FROM export_objects; CREATE OR REPLACE VIEW export_objects AS FROM loaded")
	return db
}

func views(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/duckdb.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func run(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%v\nin\n%s", err, query)
	}
}

// lines are the rows of a query, each a text.
func lines(t *testing.T, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, query)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		var line []string
		for _, v := range values {
			if v.Valid {
				line = append(line, v.String)
			} else {
				line = append(line, "-")
			}
		}
		out = append(out, strings.Join(line, " | "))
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%v\nin\n%s", err, query)
	}
	slices.Sort(out)
	return out
}

// sameState holds the views against the reference consumer.
func sameState(t *testing.T, db *sql.DB, s *apply.State) {
	t.Helper()
	for _, c := range []struct {
		what  string
		query string
		want  []string
		line  func(string) string
	}{
		{"rows", `SELECT CAST(to_json({script: script, class: class, cell: cell, facet: facet, incarnation: incarnation, "table": "table",
			generation: generation, columns: columns, key: key, row: value}) AS VARCHAR) FROM export_rows`, rowLines(t, s), canonical},
		{"certified positions", `SELECT CAST(to_json({script: script, class: class, cell: cell, facet: facet, incarnation: incarnation,
			epoch: epoch, txid: txid, "commit": "commit"}) AS VARCHAR) FROM export_certified`, certifiedLines(t, s), canonical},
		{"gaps", `SELECT CAST(to_json({script: script, class: class, cell: cell, facet: facet, incarnation: incarnation, gap_kind: gap_kind,
			epoch: epoch, txid: txid, "commit": "commit", bound_epoch: bound_epoch, bound_txid: bound_txid, certified_txid: certified_txid,
			table_name: table_name, generation: generation, reason: reason, detail: detail}) AS VARCHAR) FROM export_gaps`, gapLines(t, s), canonical},
	} {
		got := lines(t, db, c.query)
		for i := range got {
			got[i] = c.line(got[i])
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-reference consumer +DuckDB):\n%s", c.what, diff)
		}
	}
}

// canonical spells JSON one way: keys in order, numbers as class and value.
func canonical(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err.Error() + ": " + text
	}
	b, err := json.Marshal(spell(v))
	if err != nil {
		return err.Error() + ": " + text
	}
	return string(b)
}

// spell marks reals, whose spelling differs between writers.
func spell(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = spell(v[k])
		}
	case []any:
		for i := range v {
			v[i] = spell(v[i])
		}
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		f, err := v.Float64()
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("real %v", f)
	}
	return v
}

func rowLines(t *testing.T, s *apply.State) []string {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteRows(&b); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for line := range strings.Lines(b.String()) {
		out = append(out, canonical(line))
	}
	slices.Sort(out)
	return out
}

func certifiedLines(t *testing.T, s *apply.State) []string {
	t.Helper()
	out := []string{}
	for _, id := range s.Streams() {
		for epoch, at := range s.Certified(id) {
			b, err := json.Marshal(map[string]any{
				"script": id.Script, "class": id.Class, "cell": id.Cell, "facet": facetOf(id), "incarnation": id.Incarnation,
				"epoch": epoch, "txid": at.TXID, "commit": at.Commit,
			})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, canonical(string(b)))
		}
	}
	slices.Sort(out)
	return out
}

func gapLines(t *testing.T, s *apply.State) []string {
	t.Helper()
	gaps, err := s.Gaps()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for i := range gaps {
		out = append(out, canonical(string(gaps[i].AppendJSON(nil))))
	}
	slices.Sort(out)
	return out
}

func facetOf(id envelope.Stream) *string {
	if id.Facet == "" {
		return nil
	}
	return &id.Facet
}

// demoObjects are objects that the real exporter wrote, and the directory of
// their bucket.
func demoObjects(t *testing.T) (string, *consumer.Consumer) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	equal, err := demo.Run(t.Context(), demo.Options{
		Dir: dir, Cells: 4, Time: 4 * time.Second, Keep: true, Out: io.Discard, Progress: io.Discard, Seed: 5,
	})
	if err != nil || !equal {
		t.Fatalf("the demo: equal %v, %v", equal, err)
	}
	store, err := objstore.Open(t.Context(), objstore.Config{URL: "file://" + filepath.Join(dir, "bucket")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bucket", bucket.Prefix), c
}

// TestObjectsOfTheExporter: DuckDB finds the records that our reader finds,
// and by the views of the documentation the consumer's state.
func TestObjectsOfTheExporter(t *testing.T) {
	objects, c := demoObjects(t)
	db := openDB(t, objects)
	want := []string{}
	for _, r := range c.Records {
		e, err := envelope.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		name, facet := "-", "-"
		if r.CellName != nil {
			name = *r.CellName
		}
		if r.Stream.Facet != "" {
			facet = r.Stream.Facet
		}
		want = append(want, fmt.Sprintf("%s | %s | %s | %s | %s | %s | %d | %d | %d | %d | %d | %s | %s | %d | %d | %s",
			e.Kind, r.Stream.Script, r.Stream.Class, r.Stream.Cell, name, facet, r.Stream.Incarnation,
			r.Position.Epoch, r.Position.TXID, r.Position.Commit, r.CommittedAt, r.Node, r.Origin, r.Fragment, r.Fragments, e.Body))
	}
	slices.Sort(want)
	got := lines(t, db, `SELECT kind, script, class, cell, cell_name, facet, incarnation, epoch, txid, "commit",
		epoch_ms(committed_at), node, origin, fragment, fragments, body FROM export_objects`)
	if len(want) < 100 || !slices.Equal(got, want) {
		t.Errorf("DuckDB finds %d records, our reader %d, or others", len(got), len(want))
	}
	sameState(t, db, c.State)
	if n := len(lines(t, db, "SELECT cell FROM export_certified")); n == 0 {
		t.Error("nothing is certified")
	}
	if values := sameValues(t, db, c.State); values < 100 {
		t.Errorf("%d values are compared, too few to say anything", values)
	}
}

// sameValues holds export_value against the reference consumer, for every
// column of every row and for a column that no row has; it returns how many
// values there are.
func sameValues(t *testing.T, db *sql.DB, s *apply.State) int {
	t.Helper()
	want := []string{}
	for _, line := range rowLines(t, s) {
		var row struct {
			Cell, Table string
			Facet       *string
			Columns     []string
			Key, Row    []json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if len(row.Columns) != len(row.Row) {
			t.Fatalf("%d columns, %d values: %s", len(row.Columns), len(row.Row), line)
		}
		for i, name := range row.Columns {
			want = append(want, valueLine(t, row.Cell, row.Facet, row.Table, row.Key, name, row.Row[i]))
		}
	}
	got := lines(t, db, `SELECT CAST(to_json([to_json(cell), to_json(facet), to_json("table"), key, to_json(name), export_value(columns, value, name)]) AS VARCHAR)
		FROM (SELECT *, unnest(columns) AS name FROM export_rows)`)
	for i := range got {
		got[i] = canonical(got[i])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-reference consumer +DuckDB):\n%s", diff)
	}
	if absent := lines(t, db, `SELECT DISTINCT export_value(columns, value, 'no such column') FROM export_rows`); !slices.Equal(absent, []string{"-"}) {
		t.Errorf("a column that no row has is %q", absent)
	}
	return len(got)
}

func valueLine(t *testing.T, parts ...any) string {
	t.Helper()
	b, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return canonical(string(b))
}

// TestValues: what export_value gives for every kind of value, as JSON and by
// the casts that a reader writes.
func TestValues(t *testing.T) {
	db := openDB(t, "")
	got := lines(t, db, `SELECT name, json_type(v), CAST(v AS VARCHAR), v ->> '$' FROM (SELECT name, export_value(
		['n', 'i', 'r', 't', 'e', 'b', 'a.b'], CAST('[null,9007199254740993,1.5,"it''s \"q\"","",{"$blob":"AP8="},7]' AS JSON), name) AS v
		FROM unnest(['n', 'i', 'r', 't', 'e', 'b', 'a.b', 'x']) AS u(name))`)
	want := []string{
		`a.b | UBIGINT | 7 | 7`, `b | OBJECT | {"$blob":"AP8="} | {"$blob":"AP8="}`, `e | VARCHAR | "" | `,
		`i | UBIGINT | 9007199254740993 | 9007199254740993`, `n | NULL | null | -`, `r | DOUBLE | 1.5 | 1.5`,
		`t | VARCHAR | "it's \"q\"" | it's "q"`, `x | - | - | -`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := lines(t, db, `SELECT export_value(['qty'], CAST('[42]' AS JSON), 'qty')::INTEGER + 1`); !slices.Equal(got, []string{"43"}) {
		t.Errorf("as the documentation has it: %v", got)
	}
}

// TestSchemaAsDuckDBSeesIt: the types that loaders are told.
func TestSchemaAsDuckDBSeesIt(t *testing.T) {
	objects, _ := demoObjects(t)
	db := openDB(t, objects)
	got := lines(t, db, `SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet(getvariable('export_path')))`)
	want := []string{
		"body | VARCHAR", "cell | VARCHAR", "cell_name | VARCHAR", "class | VARCHAR", "commit | UBIGINT",
		"committed_at | TIMESTAMP WITH TIME ZONE", "epoch | UBIGINT", "facet | VARCHAR", "fragment | UINTEGER", "fragments | UINTEGER",
		"incarnation | UBIGINT", "kind | VARCHAR", "node | VARCHAR", "origin | VARCHAR", "script | VARCHAR", "txid | UBIGINT",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBloomFilterIsUsed: DuckDB excludes the row groups of a cell that is not
// there by our filter, and not those of one that is; our reader says the same.
func TestBloomFilterIsUsed(t *testing.T) {
	objects, c := demoObjects(t)
	db := openDB(t, objects)
	cells := map[string]bool{}
	for _, r := range c.Records {
		cells[r.Stream.Cell] = true
	}
	files := lines(t, db, "SELECT file FROM glob(getvariable('export_path'))")
	if len(files) == 0 || len(cells) < 2 {
		t.Fatalf("%d objects, %d cells", len(files), len(cells))
	}
	excluded, present := 0, 0
	for _, file := range files {
		for cell := range cells {
			for _, name := range []string{cell, cell + "x"} {
				probe := lines(t, db, fmt.Sprintf("SELECT bloom_filter_excludes FROM parquet_bloom_probe('%s', 'cell', '%s')", file, name))
				may := mayHold(t, file, name)
				if len(probe) != 1 || (probe[0] == "true") && holds(t, file, name) {
					t.Fatalf("%s in %s: the filter says %q", name, file, probe)
				}
				if probe[0] == "true" {
					excluded++
					if may {
						t.Errorf("%s in %s: DuckDB excludes it, our reader does not", name, file)
					}
				} else {
					present++
				}
			}
		}
	}
	if excluded == 0 || present == 0 {
		t.Errorf("%d excluded, %d not", excluded, present)
	}
	sizes := lines(t, db, fmt.Sprintf("SELECT bloom_filter_length FROM parquet_metadata('%s') WHERE path_in_schema = 'cell'", files[0]))
	if len(sizes) != 1 || sizes[0] == "-" || len(sizes[0]) > 4 {
		t.Errorf("bloom filters of %q bytes", sizes)
	}
}

func reader(t *testing.T, file string) *bucket.Reader {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bucket.NewReader(file, bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mayHold(t *testing.T, file, cell string) bool {
	t.Helper()
	may, err := reader(t, file).MayHold(cell)
	if err != nil {
		t.Fatal(err)
	}
	return may
}

func holds(t *testing.T, file, cell string) bool {
	t.Helper()
	for rec, err := range reader(t, file).Records() {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Stream.Cell == cell {
			return true
		}
	}
	return false
}
