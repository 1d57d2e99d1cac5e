package demo

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"celldexport/envelope"
	"celldexport/exporter/consumer"
	"celldexport/internal/celld"
	"celldexport/internal/objstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs a short demo with a promise broken.
func play(t *testing.T, o Options) (equal bool, out string) {
	t.Helper()
	var said, progress bytes.Buffer
	o.Dir, o.Cells, o.Time, o.Seed = t.TempDir(), 3, 4*time.Second, 3
	o.Out, o.Progress = &said, &progress
	equal, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(progress.String(), said.String())
	return equal, said.String()
}

func TestDemo(t *testing.T) {
	t.Parallel()
	equal, out := play(t, Options{})
	if !equal || !strings.HasSuffix(out, "consumer equals source, certified to head\n") {
		t.Errorf("the demo ends with: %s", out)
	}
}

// A record that never arrives shows as a row that differs, and as a head or a
// link that is not certified.
func TestDroppedRecord(t *testing.T) {
	t.Parallel()
	var at target
	equal, out := play(t, Options{consumed: func(c *consumer.Consumer) {
		at = choose(t, c)
		c.Records = slices.DeleteFunc(c.Records, at.made)
		apply(t, c)
	}})
	red(t, equal, out, at.stream.Cell, "table "+at.table, at.key, "certified")
}

// Two values that changed places show as a row that differs.
func TestSwappedValues(t *testing.T) {
	t.Parallel()
	var at target
	equal, out := play(t, Options{consumed: func(c *consumer.Consumer) {
		at = choose(t, c)
		for _, r := range c.Records {
			if at.made(r) {
				at.swap(r.Body.(*envelope.Rows))
			}
		}
		apply(t, c)
	}})
	red(t, equal, out, at.stream.Cell, "table "+at.table, at.key)
}

// An exporter that does not read own.json afresh exports what its node wrote
// after it had lost the cell.
func TestSkippedOwnershipRead(t *testing.T) {
	t.Parallel()
	var forge sync.Once
	equal, out := play(t, Options{fleet: func(s objstore.Store) objstore.Store {
		forge.Do(func() { s = &stillOurs{Store: s, node: "node-a", last: make(map[string][]byte)} })
		return s
	}})
	red(t, equal, out, class+":", "is of a history that was lost")
}

// red holds the demo's output against a difference that names the given parts
// on one line each.
func red(t *testing.T, equal bool, out string, parts ...string) {
	t.Helper()
	if equal || strings.Contains(out, "consumer equals source") {
		t.Fatalf("the demo does not notice: %s", out)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("the difference does not name %q:\n%s", part, out)
		}
	}
}

// target is a row of the consumer's copy that a rows record brought.
type target struct {
	stream   envelope.Stream
	table    string
	position envelope.Position
	key      string
	keyed    []envelope.Value
	columns  [2]int
}

// choose finds a row with two values that differ.
func choose(t *testing.T, c *consumer.Consumer) target {
	t.Helper()
	for _, id := range c.State.Streams() {
		for _, table := range c.State.Tables(id) {
			for _, row := range table.Rows {
				i := slices.IndexFunc(row.Values, func(v envelope.Value) bool {
					return spell(v) != spell(row.Values[0])
				})
				if row.Origin != envelope.Live || i < 0 {
					continue
				}
				return target{
					stream: id, table: table.Table, position: row.Position, keyed: row.Key,
					key: "key " + spell(row.Key...), columns: [2]int{0, i},
				}
			}
		}
	}
	t.Fatal("no row to break")
	return target{}
}

func spell(v ...envelope.Value) string { return string(envelope.AppendValues(nil, v)) }

// made reports whether a record is the one that brought the row.
func (at target) made(r *envelope.Record) bool {
	rows, ok := r.Body.(*envelope.Rows)
	return ok && r.Stream == at.stream && r.Position == at.position && rows.Table == at.table
}

func (at target) swap(rows *envelope.Rows) {
	for _, change := range rows.Changes {
		if spell(change.Key...) == spell(at.keyed...) && change.Op != envelope.Delete {
			i, j := at.columns[0], at.columns[1]
			change.Row[i], change.Row[j] = change.Row[j], change.Row[i]
		}
	}
}

func apply(t *testing.T, c *consumer.Consumer) {
	t.Helper()
	if err := c.Apply(); err != nil {
		t.Fatal(err)
	}
}

// stillOurs answers every reading of an own.json that names another node with
// the last one that named its own.
type stillOurs struct {
	objstore.Store
	node string

	mu   sync.Mutex
	last map[string][]byte
}

func (s *stillOurs) Get(ctx context.Context, key string, opts objstore.GetOptions) (io.ReadCloser, objstore.Object, error) {
	body, obj, err := s.Store.Get(ctx, key, opts)
	if err != nil || !strings.HasSuffix(key, "/own.json") {
		return body, obj, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, obj, err
	}
	own, err := celld.ParseOwn(data)
	if err != nil {
		return nil, obj, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.Node == s.node {
		s.last[key] = data
	}
	forged := s.last[key]
	obj.Size = int64(len(forged))
	return io.NopCloser(bytes.NewReader(forged)), obj, nil
}
