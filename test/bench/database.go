package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	_ "modernc.org/sqlite" // the engine behind every measured database

	"celldexport/diffpage/shadow"
	"celldexport/internal/ltxfile"
)

// database is a SQLite database in WAL mode that nobody else uses. Its file
// is, between two units, a valid shadow: what a unit changed is only in the
// WAL until the next one.
type database struct {
	path string
	db   *sql.DB
}

func openDatabase(path string) (*database, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=page_size(4096)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return &database{path: path, db: db}, nil
}

func (d *database) close() error { return d.db.Close() }

func (d *database) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := d.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// settle brings everything committed into the database file.
func (d *database) settle(ctx context.Context) error {
	return d.exec(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// unit runs statements and returns the pages they changed. The file stays at
// the state before.
func (d *database) unit(ctx context.Context, statements ...string) (*unit, error) {
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	if err := d.exec(ctx, statements...); err != nil {
		return nil, err
	}
	u, err := readWAL(d.path + "-wal")
	if err != nil {
		return nil, fmt.Errorf("read what %s changed: %w", statements[len(statements)-1], err)
	}
	return u, nil
}

// eightColumns is the table of most stages: eight mixed columns, about 110
// bytes of record and 170 of JSON.
const eightColumns = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, price REAL, kind INT, note TEXT, ref INT, raw BLOB, state TEXT)"

// fill inserts rows 1 to n into the table.
func fill(rows int) string { return fillFrom(1, int64(rows)) }

func fillFrom(from, to int64) string {
	return fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO t SELECT i, 'customer-' || i, i * 1.25, i %% 7, 'a line of text that says nothing, ' || i,
			CASE i %% 3 WHEN 0 THEN NULL ELSE i * 1000003 END, CAST('blob' || i AS BLOB), 'open' FROM n`, from, to)
}

// unit is the pages that one capture changed.
type unit struct {
	pageSize, commit uint32
	pgnos            []uint32
	pages            [][]byte
}

// WAL layout (SQLite file format 4.1, 4.2).
const (
	walHeader   = 32
	frameHeader = 24
)

// readWAL reads the newest image of every page in a WAL that holds nothing
// but committed transactions of its own.
func readWAL(path string) (*unit, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(file) < walHeader {
		return nil, errors.New("nothing was written")
	}
	u := &unit{pageSize: binary.BigEndian.Uint32(file[8:])}
	newest := make(map[uint32][]byte)
	step := frameHeader + int(u.pageSize)
	for frame := range slices.Chunk(file[walHeader:], step) {
		if len(frame) < step || !bytes.Equal(frame[8:16], file[16:24]) {
			break
		}
		newest[binary.BigEndian.Uint32(frame)] = frame[frameHeader:]
		if commit := binary.BigEndian.Uint32(frame[4:]); commit != 0 {
			u.commit = commit
		}
	}
	u.pgnos = slices.Sorted(maps.Keys(newest))
	u.pgnos = slices.DeleteFunc(u.pgnos, func(n uint32) bool { return n > u.commit })
	for _, n := range u.pgnos {
		u.pages = append(u.pages, newest[n])
	}
	return u, nil
}

// bytes is the size of the page images.
func (u *unit) bytes() int { return len(u.pgnos) * int(u.pageSize) }

func (u *unit) String() string {
	return fmt.Sprintf("%d pages, %s", len(u.pgnos), size(int64(u.bytes())))
}

// images is the unit as a diff takes it.
func (u *unit) images() (*shadow.Images, error) {
	images := shadow.NewImages(u.pageSize, 1<<30, "")
	for i, n := range u.pgnos {
		if err := images.Add(n, u.pages[i]); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// ltx is the unit as a file.
func (u *unit) ltx(form ltxfile.Form) ([]byte, error) {
	var out bytes.Buffer
	err := u.write(&out, form, 2)
	return out.Bytes(), err
}

func (u *unit) write(w io.Writer, form ltxfile.Form, txid uint64) error {
	out, err := ltxfile.NewWriter(w, ltxfile.Header{
		Flags: ltxfile.FlagNoChecksum, PageSize: u.pageSize, Commit: u.commit, MinTXID: txid, MaxTXID: txid, Timestamp: 1_800_000_000_000,
	}, form)
	if err != nil {
		return err
	}
	for i, n := range u.pgnos {
		if n == ltxfile.LockPage(u.pageSize) {
			continue
		}
		if err := out.WritePage(n, u.pages[i]); err != nil {
			return err
		}
	}
	_, err = out.Close(0)
	return err
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.3g KiB", float64(n)/(1<<10))
	}
}
