package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

// sizes are in bytes: of the database, of its pages and about of its rows, of
// the exporter's queue_bytes and max_tx_bytes, and the soft limit of its
// memory (0 is none).
type sizes struct{ database, page, row, queue, unit, softLimit int64 }

// scene is one cell on one node, with the exporter beside it.
type scene struct {
	dir, self string
	sizes     sizes
	store     objstore.Store
	fleet     *celldsim.Fleet
	node      *celldsim.Node
	cell      *celldsim.Cell
	// profile is a file for heap profiles of the exporter, if any.
	profile string
	// seen is the last export object that was read.
	seen string
}

// result is what one unit took.
type result struct {
	unit   string
	file   int64 // bytes of the LTX file
	pages  int64 // of the database after it
	rows   int64
	memory memory
	took   time.Duration
}

// String is the result in one line.
func (r result) String() string {
	return fmt.Sprintf("%-8s %8d pages, file %5d MiB, %9d changes: peak %4d MiB, heap %4d MiB, live %4d MiB, %v",
		r.unit, r.pages, r.file>>20, r.rows, r.memory.Peak>>20, r.memory.Heap>>20, r.memory.Live>>20, r.took.Round(100*time.Millisecond))
}

// writerCache has the one who writes the database keep it in memory: with
// small pages and keys in no order, SQLite's own few megabytes have it write
// every page many times before the unit is there.
const writerCache = "PRAGMA cache_size=-3000000"

func newScene(ctx context.Context, dir, self string, z sizes) (*scene, error) {
	s := &scene{dir: dir, self: self, sizes: z}
	var err error
	if err = os.MkdirAll(s.bucketDir(), 0o755); err != nil {
		return nil, err
	}
	if s.store, err = objstore.NewFile(s.bucketDir()); err != nil {
		return nil, err
	}
	s.fleet, err = celldsim.New(ctx, celldsim.Config{
		Bucket: s.store, Script: "shop", Classes: []string{"Cart"}, Seed: 1, Layout: celldsim.V03, Now: time.Now, TruncatePages: -1,
	})
	if err != nil {
		return nil, err
	}
	if s.node, err = s.fleet.Node(ctx, "node-a", filepath.Join(dir, "watch")); err == nil {
		s.cell, err = s.node.ActivateWith(ctx, celldsim.Activation{
			Cell: s.fleet.CellID("Cart", "large"), Name: "large", Pragmas: []string{fmt.Sprintf("page_size(%d)", z.page)},
		})
	}
	if err == nil {
		err = s.cell.Exec(writerCache)
	}
	if err == nil {
		err = s.commit(ctx, schema)
	}
	if err != nil {
		return nil, errors.Join(err, s.fleet.Close())
	}
	return s, nil
}

func (s *scene) bucketDir() string { return filepath.Join(s.dir, "bucket") }
func (s *scene) stateDir() string  { return filepath.Join(s.dir, "state") }

func (s *scene) close() error { return s.fleet.Close() }

// commit runs SQL, captures it as one unit and uploads that.
func (s *scene) commit(ctx context.Context, sql string) error {
	if err := s.cell.Exec(sql); err != nil {
		return err
	}
	if _, err := s.cell.Capture(); err != nil {
		return err
	}
	return s.cell.Upload(ctx)
}

// play exports the tables' first rows and then every unit, and holds the
// changes of each against the database.
func (s *scene) play(ctx context.Context, units []unit, report func(result) error) error {
	if _, err := s.exportOnce(ctx, 0); err != nil {
		return fmt.Errorf("export the empty tables: %w", err)
	}
	if _, err := s.read(ctx); err != nil {
		return err
	}
	for _, u := range append([]unit{s.fill()}, units...) {
		r, err := s.unit(ctx, u)
		if err == nil {
			err = report(r)
		}
		if err != nil {
			return fmt.Errorf("unit %s: %w", u.name, err)
		}
	}
	return nil
}

func (s *scene) unit(ctx context.Context, u unit) (result, error) {
	r := result{unit: u.name}
	before, err := u.expect.before(ctx, s.cell.DB())
	if err != nil {
		return r, err
	}
	if err := s.commit(ctx, u.sql); err != nil {
		return r, err
	}
	want, err := u.expect.after(ctx, s.cell.DB(), before)
	if err != nil {
		return r, err
	}
	if u.lost {
		if err := os.RemoveAll(s.stateDir()); err != nil {
			return r, err
		}
	}
	began := time.Now()
	if r.memory, err = s.exportOnce(ctx, 0); err != nil {
		return r, err
	}
	r.took = time.Since(began)
	got, err := s.read(ctx)
	if err != nil {
		return r, err
	}
	r.rows = got.rows()
	if err := s.measure(ctx, &r); err != nil {
		return r, err
	}
	return r, errors.Join(want.differences(got)...)
}

// measure looks at the unit's file and at the database.
func (s *scene) measure(ctx context.Context, r *result) error {
	if err := s.cell.DB().QueryRowContext(ctx, "PRAGMA page_count").Scan(&r.pages); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.cell.LTXDir(), "*.ltx"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("no unit was captured"))
	}
	last := files[len(files)-1]
	info, err := os.Stat(last)
	if err != nil {
		return err
	}
	r.file = info.Size()
	return nil
}

// chosen are the units of a comma-separated list, all for an empty one.
func chosen(list string) []unit {
	if list == "" {
		return units
	}
	var out []unit
	for _, u := range units {
		for name := range strings.SplitSeq(list, ",") {
			if name == u.name {
				out = append(out, u)
			}
		}
	}
	return out
}

func unitNames() []string {
	var names []string
	for _, u := range units {
		names = append(names, u.name)
	}
	return names
}
