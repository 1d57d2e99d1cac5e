package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"celldexport/internal/celld"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// crowd makes n small cells resident on the node, with the files of the
// scene's own, and exports them under a limit of open files (0 is none).
func (s *scene) crowd(ctx context.Context, n int, files uint64) (memory, error) {
	if err := s.clones(ctx, n-1); err != nil {
		return memory{}, err
	}
	m, err := s.exportOnce(ctx, files)
	if err != nil {
		return m, err
	}
	cells, err := s.linked(ctx)
	if err == nil && cells != n {
		err = fmt.Errorf("%d of %d cells were exported", cells, n)
	}
	return m, err
}

// clones makes n cells with the files of the scene's.
func (s *scene) clones(ctx context.Context, n int) error {
	files, err := filepath.Glob(filepath.Join(s.cell.LTXDir(), "*.ltx"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("the first cell has no files"))
	}
	own := celld.Own{Node: s.node.Name(), Epoch: s.cell.Epoch()}.Append(nil)
	for range n {
		id := s.fleet.RandomCellID("Cart")
		if err := s.put(ctx, celld.OwnKey(id), own); err != nil {
			return err
		}
		if err := s.clone(ctx, id, files); err != nil {
			return fmt.Errorf("clone %s: %w", id, err)
		}
	}
	return nil
}

func (s *scene) clone(ctx context.Context, id string, files []string) error {
	scope, err := celld.ParseScope(id)
	if err != nil {
		return err
	}
	dir := celld.LTXDir(s.node.Watch(), scope, s.cell.Epoch())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o644); err != nil {
			return err
		}
		if err := s.put(ctx, celld.LTXKey(id, s.cell.Epoch(), 0, uint64(i+1), uint64(i+1)), b); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) put(ctx context.Context, key string, b []byte) error {
	_, err := s.store.Put(ctx, key, bytes.NewReader(b), int64(len(b)), objstore.PutOptions{})
	return err
}

// linked counts the cells in the export.
func (s *scene) linked(ctx context.Context) (int, error) {
	cells := make(map[string]struct{})
	for obj, err := range s.store.List(ctx, bucket.Prefix, s.seen) {
		if err != nil {
			return 0, err
		}
		r, err := bucket.Fetch(ctx, s.store, obj.Key)
		if err != nil {
			return 0, err
		}
		for rec, err := range r.Records() {
			if err != nil {
				return 0, err
			}
			cells[rec.Stream.Cell] = struct{}{}
		}
	}
	return len(cells), nil
}
