package main

import (
	"context"
	"database/sql"
	"fmt"
)

// schema makes one table of each kind: rows found by rowid, rows of a rowid
// table found by another key, and a WITHOUT ROWID table.
const schema = `
CREATE TABLE byrowid(id INTEGER PRIMARY KEY, n INTEGER, gone TEXT, v TEXT);
CREATE TABLE bytext(k TEXT PRIMARY KEY, n INTEGER, v TEXT);
CREATE TABLE without(a INTEGER, k TEXT, n INTEGER, v TEXT, PRIMARY KEY(k, a)) WITHOUT ROWID;`

// tables of the schema. Their rows are of about the same size.
var tables = [...]string{"byrowid", "bytext", "without"}

// fill puts the first rows into all tables. Every 500th row is a long one.
func (s *scene) fill() unit {
	n := s.sizes.database / s.sizes.row / int64(len(tables))
	random := s.sizes.row * 3 / 8 // two digits each; the rest is other columns, the index and what pages leave free
	text := fmt.Sprintf(`
BEGIN;
WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i < %[1]d)
  INSERT INTO byrowid SELECT i, i%%97, 'x'||i, hex(randomblob(iif(i%%500, %[2]d, 20000))) FROM c;
WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i < %[1]d)
  INSERT INTO bytext SELECT printf('%%08x', i*2654435761 %% 4294967296), i, hex(randomblob(iif(i%%500, %[2]d, 20000))) FROM c;
WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i < %[1]d)
  INSERT INTO without SELECT i%%7, printf('%%09d', i), i, hex(randomblob(iif(i%%500, %[2]d, 20000))) FROM c;
COMMIT;`, n, random)
	return unit{name: "fill", sql: text, expect: expectation{op: "I", tables: tables[:]}}
}

// unit is SQL that rewrites the database, and what a consumer must be told.
type unit struct {
	name, sql string
	expect    expectation
	// lost has the exporter's state removed first, so that it sends the
	// whole database as a snapshot.
	lost bool
}

// units follow one another on one database.
var units = []unit{
	{name: "update", sql: `BEGIN; UPDATE byrowid SET n = n+1; UPDATE bytext SET n = n+1; UPDATE without SET n = n+1; COMMIT`,
		expect: expectation{op: "U", tables: tables[:]}},
	// The tables' pages are spread over the file; VACUUM puts them in order.
	{name: "vacuum", sql: `VACUUM`},
	{name: "drop", sql: `ALTER TABLE byrowid DROP COLUMN gone`, expect: expectation{op: "I", tables: tables[:1], again: true}},
	{name: "lost", sql: `UPDATE bytext SET n = 0 WHERE n = 1`, lost: true, expect: expectation{op: "I", tables: tables[:], again: true}},
	{name: "delete", sql: `BEGIN; DELETE FROM byrowid WHERE n >= 0; DELETE FROM bytext WHERE n >= 0; DELETE FROM without WHERE n >= 0; COMMIT`,
		expect: expectation{op: "D", tables: tables[:], gone: true}},
}

// expectation says which changes a unit is to lead to: one op for every row of
// the tables, as they are after the unit, or before it when they are gone.
type expectation struct {
	op     string
	tables []string
	gone   bool
	// again says that the rows come as a snapshot.
	again bool
}

func (x expectation) before(ctx context.Context, db *sql.DB) (sums, error) {
	if !x.gone {
		return nil, nil
	}
	return x.sum(ctx, db)
}

func (x expectation) after(ctx context.Context, db *sql.DB, before sums) (sums, error) {
	if x.gone {
		return before, nil
	}
	return x.sum(ctx, db)
}

func (x expectation) sum(ctx context.Context, db *sql.DB) (sums, error) {
	out := make(sums)
	for _, t := range x.tables {
		kind := "rows"
		if x.again {
			kind = "snapshot"
		}
		if err := out.table(ctx, db, t, kind, x.op); err != nil {
			return nil, fmt.Errorf("sum up table %s: %w", t, err)
		}
	}
	return out, nil
}
