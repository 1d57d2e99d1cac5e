// Package consumer is whoever loads the export, in tests and in the demo: it
// has the sink's objects and nothing else, applies them with the reference
// consumer, and is held against the databases that the records came from.
package consumer

import (
	"context"
	"fmt"
	"io"
	"strings"

	"celldexport/envelope"
	"celldexport/envelope/apply"
	"celldexport/internal/objstore"
	"celldexport/sinks/bucket"
)

// Consumer is a consumer's copy.
type Consumer struct {
	// State is the copy that the records lead to.
	State *apply.State
	// Records are all records read, fragments one by one, in the order of
	// objects and of records in them.
	Records []*envelope.Record
	// Changes counts the row changes of rows records.
	Changes int
}

// Load reads every object of the bucket sink below export/changes/.
func Load(ctx context.Context, store objstore.Store) (*Consumer, error) {
	c := &Consumer{}
	for obj, err := range store.List(ctx, bucket.Prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list the export: %w", err)
		}
		if !strings.HasSuffix(obj.Key, ".parquet") {
			continue
		}
		if err := c.read(ctx, store, obj.Key); err != nil {
			return nil, err
		}
	}
	return c, c.Apply()
}

// read adds the records of one object.
func (c *Consumer) read(ctx context.Context, store objstore.Store, key string) error {
	r, err := bucket.Fetch(ctx, store, key)
	if err != nil {
		return err
	}
	for enc, err := range r.Records() {
		if err != nil {
			return err
		}
		rec, err := envelope.DecodeBody(enc.Envelope, enc.Kind, enc.Body)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		c.Records = append(c.Records, rec)
	}
	return nil
}

// Apply builds the copy anew from Records.
func (c *Consumer) Apply() error {
	c.State, c.Changes = apply.New(), 0
	for _, r := range c.Records {
		if err := c.State.Add(r); err != nil {
			return fmt.Errorf("apply a record: %w", err)
		}
		if rows, ok := r.Body.(*envelope.Rows); ok {
			c.Changes += len(rows.Changes)
		}
	}
	return nil
}

// Until is a consumer of one cell's records up to and including a position.
func (c *Consumer) Until(cell string, p envelope.Position) (*Consumer, error) {
	part := &Consumer{}
	for _, r := range c.Records {
		if r.Stream.Cell == cell && r.Position.Compare(p) <= 0 {
			part.Records = append(part.Records, r)
		}
	}
	return part, part.Apply()
}

// WriteRows writes the copy's rows as JSON lines.
func (c *Consumer) WriteRows(w io.Writer) error { return c.State.WriteRows(w) }

// Stream is the newest stream of a cell that the consumer holds.
func (c *Consumer) Stream(cell string) (envelope.Stream, bool) {
	var found envelope.Stream
	ok := false
	for _, id := range c.State.Streams() {
		if id.Cell == cell && id.Facet == "" && (!ok || id.Incarnation > found.Incarnation) {
			found, ok = id, true
		}
	}
	return found, ok
}
