package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"celldexport/internal/celldsim"
	"celldexport/sinks/bucket"
)

const (
	writerTable = "CREATE TABLE items(id INTEGER PRIMARY KEY, sku TEXT, qty INT, price REAL, note TEXT)"
	writerFill  = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000)
		INSERT INTO items SELECT i, 'A-' || i, i % 9, i * 1.25, 'a note about the item ' || i FROM n`
	writerLog     = "CREATE TABLE item_log(seq INTEGER PRIMARY KEY, op TEXT, at INT, row TEXT)"
	writerTrigger = `CREATE TRIGGER items_u AFTER UPDATE ON items BEGIN
		INSERT INTO item_log(op, at, row) VALUES('U', unixepoch(), json_array(new.id, new.sku, new.qty, new.price, new.note)); END`
	writerUpdate = "UPDATE items SET qty = qty + 1, note = 'changed ' || ? WHERE id = ?"
	// captureEvery is how many commits share a capture.
	captureEvery = 20
)

// writerStage measures the commits per second of a writer: alone, with the
// sidecar in a process of its own, with triggers that keep a log, and with
// the session extension. The sidecar has the other processor: what is
// measured is whether it holds the writer up, not that it uses a processor.
func writerStage(ctx context.Context, b *bench) ([]Line, error) {
	commits, turns := 2000, 7
	if b.flags.short {
		commits, turns = 600, 3
	}
	note := "wall time of the commits"
	if runtime.NumCPU() > 1 {
		if err := pin(0); err != nil {
			return nil, err
		}
		defer unpin()
	} else {
		note += "; one processor: the sidecar takes the writer's"
	}
	w := &writers{dir: b.dir, commits: commits}
	kinds := []struct {
		name string
		run  func(context.Context) (time.Duration, error)
		base int
	}{
		{"sidecar off", w.alone, 0},
		{"sidecar on", w.beside, 0},
		{"triggers into a log table", w.triggers, 0},
		{"other driver, no session", w.plain, 3},
		{"session extension", w.session, 3},
	}
	results := make([]result, len(kinds))
	for range turns {
		for i, k := range kinds {
			took, err := k.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			results[i].ns = append(results[i].ns, float64(took)/float64(commits))
		}
	}
	var lines []Line
	for i, k := range kinds {
		l := Line{Stage: "writer", What: k.name, On: fmt.Sprintf("%d one-row commits, %d turns", commits, turns), NS: results[i].median(), Note: note}
		l = l.rate(1, "commits/s")
		if i != k.base {
			l = l.versus(kinds[k.base].name+" (time per commit)", results[i].against(results[k.base]))
		}
		if k.name == "sidecar on" {
			// What is within the quartiles of noise counts as no slow-down.
			l = l.judged(l.Low <= 1.01, "0 % slow-down (within noise)")
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// writers runs one writer after the other, each in a directory of its own.
type writers struct {
	dir     string
	commits int
	n       int
}

func (w *writers) fresh() (string, error) {
	w.n++
	dir := filepath.Join(w.dir, fmt.Sprint("turn-", w.n))
	return dir, os.MkdirAll(dir, 0o755)
}

// alone is the node without a sidecar.
func (w *writers) alone(ctx context.Context) (time.Duration, error) {
	return w.node(ctx, nil, writerTable, writerFill)
}

// triggers is the node with an application that keeps its own log.
func (w *writers) triggers(ctx context.Context) (time.Duration, error) {
	return w.node(ctx, nil, writerTable, writerFill, writerLog, writerTrigger)
}

// beside is the node with the exporter running.
func (w *writers) beside(ctx context.Context) (took time.Duration, err error) {
	var sidecar *child
	defer func() {
		if sidecar != nil {
			err = errors.Join(err, sidecar.end())
		}
	}()
	return w.node(ctx, func(r *rig) (err error) {
		sidecar, err = startChild(ctx, r.dir)
		return err
	}, writerTable, writerFill)
}

// node runs the writer on a simulated node, which captures and uploads.
func (w *writers) node(ctx context.Context, with func(*rig) error, statements ...string) (took time.Duration, err error) {
	dir, err := w.fresh()
	if err != nil {
		return 0, err
	}
	r, err := newRig(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.fleet.Close()) }()
	c, err := r.cell(ctx, "writer", statements...)
	if err != nil {
		return 0, err
	}
	if with != nil {
		if err := with(r); err != nil {
			return 0, err
		}
	}
	runtime.GC()
	for i := range w.commits {
		start := time.Now()
		if err := c.Exec(writerUpdate, i, i*7%1000+1); err != nil {
			return 0, err
		}
		took += time.Since(start)
		if i%captureEvery == captureEvery-1 {
			if err := ship(ctx, c); err != nil {
				return 0, err
			}
		}
	}
	if with != nil {
		return took, exported(ctx, r, c)
	}
	return took, nil
}

// exported waits until the sidecar has stored something: a sidecar that did
// nothing would hold nobody up.
func exported(ctx context.Context, r *rig, c *celldsim.Cell) error {
	for range 300 {
		for _, err := range r.store.List(ctx, bucket.Prefix, "") {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the sidecar exported nothing of %s", c.Scope())
}

// plain and session run the same statements through the driver that has the
// session extension.
func (w *writers) plain(ctx context.Context) (time.Duration, error)   { return w.direct(false) }
func (w *writers) session(ctx context.Context) (time.Duration, error) { return w.direct(true) }

func (w *writers) direct(record bool) (took time.Duration, err error) {
	dir, err := w.fresh()
	if err != nil {
		return 0, err
	}
	conn, err := sqlite.OpenConn(filepath.Join(dir, "direct.db"), sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenWAL)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, s := range []string{"PRAGMA synchronous=off", "PRAGMA wal_autocheckpoint=0", writerTable, writerFill} {
		if err := sqlitex.ExecuteTransient(conn, s, nil); err != nil {
			return 0, err
		}
	}
	runtime.GC()
	var changes bytes.Buffer
	for i := range w.commits {
		start := time.Now()
		var s *sqlite.Session
		if record {
			if s, err = conn.CreateSession(""); err != nil {
				return 0, err
			}
			if err := s.Attach(""); err != nil {
				return 0, err
			}
		}
		if err := sqlitex.ExecuteTransient(conn, writerUpdate, &sqlitex.ExecOptions{Args: []any{i, i*7%1000 + 1}}); err != nil {
			return 0, err
		}
		if record {
			changes.Reset()
			if err := s.WriteChangeset(&changes); err != nil {
				return 0, err
			}
			s.Delete()
		}
		took += time.Since(start)
	}
	if record && changes.Len() == 0 {
		return 0, errors.New("the session saw no change")
	}
	return took, nil
}

// child is an exporter in a process of its own.
type child struct{ stop func() error }

func startChild(ctx context.Context, dir string) (*child, error) {
	cpu := "-1"
	if runtime.NumCPU() > 1 {
		cpu = "1"
	}
	cmd, err := again(ctx, "-sidecar", dir, "-cpu", cpu)
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error {
		return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("start the sidecar: it said %q", line), err, stop())
	}
	return &child{stop: stop}, nil
}

func (c *child) end() error { return c.stop() }
