package main

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"celldexport/envelope"
	"celldexport/sinks/bucket"
)

// sums tell sets of row changes apart without holding them: by table, kind of
// record and operation, the number of changes and the sum of their hashes.
type sums map[string]sum

type sum struct {
	n    int64
	hash uint64
}

func (s sums) add(table, kind, op string, key, row []byte) {
	h := fnv.New64a()
	h.Write(key)
	h.Write([]byte{0})
	h.Write(row)
	name := table + " " + kind + " " + op
	was := s[name]
	s[name] = sum{was.n + 1, was.hash + h.Sum64()}
}

func (s sums) rows() int64 {
	var n int64
	for _, x := range s {
		n += x.n
	}
	return n
}

// differences are what got has otherwise.
func (s sums) differences(got sums) []error {
	var out []error
	names := maps.Clone(s)
	maps.Copy(names, got)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if want, have := s[name], got[name]; want != have {
			out = append(out, fmt.Errorf("changes of %q: %d with hash %x were exported, the database has %d with hash %x", name, have.n, have.hash, want.n, want.hash))
		}
	}
	return out
}

// table adds one change for every row of a table, read through SQLite.
func (s sums) table(ctx context.Context, db *sql.DB, table, kind, op string) error {
	keys, err := primaryKey(ctx, db, table)
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	cells := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	values, key := make([]envelope.Value, len(columns)), make([]envelope.Value, len(keys))
	var keyText, rowText []byte
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, c := range cells {
			if values[i], err = valueOf(c); err != nil {
				return err
			}
		}
		for i, k := range keys {
			key[i] = values[slices.Index(columns, k)]
		}
		keyText, rowText = envelope.AppendValues(keyText[:0], key), envelope.AppendValues(rowText[:0], values)
		s.add(table, kind, op, keyText, rowText)
	}
	return rows.Err()
}

func primaryKey(ctx context.Context, db *sql.DB, table string) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

func valueOf(c any) (envelope.Value, error) {
	switch c := c.(type) {
	case int64:
		return envelope.Int(c), nil
	case string:
		return envelope.Text(c), nil
	}
	return envelope.Value{}, fmt.Errorf("a value of type %T", c)
}

// read sums up the changes of all export objects since the last call.
func (s *scene) read(ctx context.Context) (sums, error) {
	got := make(sums)
	for obj, err := range s.store.List(ctx, bucket.Prefix, s.seen) {
		if err != nil {
			return nil, err
		}
		s.seen = obj.Key
		if !strings.HasSuffix(obj.Key, ".parquet") {
			continue
		}
		r, err := bucket.Fetch(ctx, s.store, obj.Key)
		if err != nil {
			return nil, err
		}
		for rec, err := range r.Records() {
			if err != nil {
				return nil, err
			}
			if err := got.record(&rec); err != nil {
				return nil, fmt.Errorf("%s: %w", obj.Key, err)
			}
		}
	}
	return got, nil
}

// record adds the changes of a record. One that says that changes could not
// be shown is an error: nothing here is a reason for it.
func (s sums) record(rec *envelope.Encoded) error {
	if rec.Kind == envelope.KindBulk || rec.Kind == envelope.KindGap {
		return fmt.Errorf("a %s record at %s: %s", rec.Kind, rec.Position, rec.Body)
	}
	if rec.Kind != envelope.KindRows && rec.Kind != envelope.KindSnapshot {
		return nil
	}
	dec, err := envelope.DecodeBody(rec.Envelope, rec.Kind, rec.Body)
	if err != nil {
		return err
	}
	rows, kind := (*envelope.Rows)(nil), "rows"
	switch b := dec.Body.(type) {
	case *envelope.Rows:
		rows = b
	case *envelope.SnapshotRows:
		rows, kind = &b.Rows, "snapshot"
	}
	var key, row []byte
	for _, c := range rows.Changes {
		key, row = envelope.AppendValues(key[:0], c.Key), envelope.AppendValues(row[:0], c.Row)
		s.add(rows.Table, kind, string(c.Op), key, row)
	}
	return nil
}
