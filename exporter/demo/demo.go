// Package demo shows the whole way on simulated nodes: real SQLite databases
// are written to as celld's cells are, with schema changes, evictions, wakes
// and one takeover whose old owner goes on writing and uploading; the real
// exporter exports them into a bucket that is a directory, or to a Kafka
// broker in this process; a consumer applies the Parquet objects or the
// messages and is compared with the databases.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"celldexport/exporter/consumer"
	"celldexport/internal/objstore"
)

// Options say what the demo does.
type Options struct {
	// Dir is where it works; "" is a temporary directory.
	Dir string
	// Cells is the number of cells, Time how long they are written to.
	Cells int
	Time  time.Duration
	// Sink is where the export goes, bucket or kafka; "" is bucket.
	Sink string
	// Keep leaves databases, bucket and the consumer's rows in place.
	Keep bool
	// Out takes the result, Progress what happens meanwhile; Live says that
	// Progress is a terminal whose line may be rewritten.
	Out, Progress io.Writer
	Live          bool
	// Seed decides the traffic.
	Seed uint64

	// consumed and fleet are where tests break a promise: between the
	// objects and the consumer, and between an exporter and the bucket.
	consumed func(*consumer.Consumer)
	fleet    func(objstore.Store) objstore.Store
}

// Run runs the demo. equal is false when the consumer's copy is not the
// source's, or not certified to its head; what differs has been printed.
func Run(ctx context.Context, o Options) (equal bool, err error) {
	dir, remove, err := workDir(o)
	if err != nil {
		return false, err
	}
	defer func() {
		if remove {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	sc, err := newScene(ctx, o, dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, sc.close()) }()
	if err := sc.play(ctx); err != nil {
		return false, err
	}
	c, err := sc.consume(ctx)
	if err != nil {
		return false, err
	}
	if o.consumed != nil {
		o.consumed(c)
	}
	diffs, err := sc.compare(ctx, c)
	if err != nil {
		return false, err
	}
	if o.Keep {
		if err := keep(dir, c); err != nil {
			return false, err
		}
		fmt.Fprintf(o.Progress, "demo: kept in %s: node-a/ and node-b/ (databases), bucket/ (objects), rows.jsonl (the consumer's rows)\n", dir)
	}
	for i, d := range diffs {
		if i == maxDiffs {
			fmt.Fprintf(o.Out, "demo: ... and %d more\n", len(diffs)-i)
			break
		}
		fmt.Fprintln(o.Out, "demo:", d)
	}
	if len(diffs) > 0 {
		fmt.Fprintf(o.Out, "demo: %d cells, %d transactions, %d row changes: %d differences\n", len(sc.cells), sc.transactions(), c.Changes, len(diffs))
		return false, nil
	}
	fmt.Fprintf(o.Out, "demo: %d cells, %d transactions, %d row changes: consumer equals source, certified to head\n", len(sc.cells), sc.transactions(), c.Changes)
	return true, nil
}

// maxDiffs is how many differences are printed.
const maxDiffs = 20

// workDir makes the directory the demo works in. One that is named must be
// empty or absent: the demo never writes into somebody's data.
func workDir(o Options) (dir string, remove bool, err error) {
	if o.Dir == "" {
		dir, err = os.MkdirTemp("", "exportd-demo-")
		return dir, !o.Keep, err
	}
	dir, err = filepath.Abs(o.Dir)
	if err != nil {
		return "", false, fmt.Errorf("name the demo's directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, fmt.Errorf("look into the demo's directory: %w", err)
	}
	if len(entries) > 0 {
		return "", false, fmt.Errorf("the demo's directory %s is not empty; name another or empty it", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, fmt.Errorf("make the demo's directory: %w", err)
	}
	return dir, !o.Keep, nil
}

// keep writes the consumer's rows beside the databases and the bucket.
func keep(dir string, c *consumer.Consumer) error {
	f, err := os.Create(filepath.Join(dir, "rows.jsonl"))
	if err != nil {
		return fmt.Errorf("keep the consumer's rows: %w", err)
	}
	return errors.Join(c.WriteRows(f), f.Close())
}
