package exporter

import (
	"context"
	"errors"
	"fmt"

	"celldexport/exporter/state"
	"celldexport/internal/config"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// errBehind is returned for a state directory that does not know an object of
// its own: it is older than what it did.
var errBehind = errors.New("the state directory is behind the export bucket")

// compareObjects holds the newest object of this node against the name that
// the bucket sink saved before it wrote: a newer one means that another life
// of the node, which this directory does not know, has exported.
func (e *Exporter) compareObjects(ctx context.Context, export objstore.Store) error {
	if !e.settings.HasSink(config.SinkBucket) {
		return nil
	}
	saved, err := e.delivery.SinkState(bucket.SinkName)
	if err != nil || saved == nil {
		return err
	}
	known, err := bucket.DecodeState(saved)
	if err != nil {
		return err
	}
	newest, ok, err := bucket.Newest(ctx, export, e.settings.Node, e.now())
	if err != nil || !ok {
		return err
	}
	if last, _ := bucket.ParseName(known.Key); newest.Micros > last.Micros {
		return fmt.Errorf("%w: %s is newer than %s", errBehind, newest.Key(), known.Key)
	}
	return nil
}

// forget empties a state directory that counts as lost.
func forget(ctx context.Context, path string) error {
	dir, err := state.Open(ctx, path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Reset(ctx), dir.Close())
}
