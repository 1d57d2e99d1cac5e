package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// rowBytes is about what a row of the table takes on its page.
const rowBytes = 100

// ready opens a database of about bytes, made by SQL in an earlier run or now.
func (b *bench) ready(ctx context.Context, bytes int64) (*database, int64, error) {
	rows := bytes / rowBytes
	path := filepath.Join(b.cache, fmt.Sprintf("rows-%d.db", rows))
	if _, err := os.Stat(path); err != nil {
		if err := makeDatabase(ctx, path, rows); err != nil {
			return nil, 0, err
		}
	}
	d, err := openDatabase(path)
	if err != nil {
		return nil, 0, err
	}
	if err := d.settle(ctx); err != nil {
		return nil, 0, errors.Join(err, d.close())
	}
	return d, rows, nil
}

// makeDatabase makes it under another name first, so that one that was cut
// short is never taken for whole.
func makeDatabase(ctx context.Context, path string, rows int64) error {
	making := path + ".making"
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(making + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	d, err := openDatabase(making)
	if err != nil {
		return err
	}
	err = d.exec(ctx, eightColumns)
	const batch = 1_000_000
	for from := int64(1); err == nil && from <= rows; from += batch {
		err = d.exec(ctx, fillFrom(from, min(from+batch-1, rows)), "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err := errors.Join(err, d.close()); err != nil {
		return err
	}
	return os.Rename(making, path)
}

// flatStage shows that a unit costs what it changes, whatever the size of the
// database around it.
func flatStage(ctx context.Context, b *bench) ([]Line, error) {
	big := int64(256 << 20)
	if b.flags.short {
		big = 128 << 20
	}
	if b.flags.large {
		big = 1 << 30
	}
	var runs []func() error
	var names []string
	for _, bytes := range []int64{16 << 20, big} {
		d, rows, err := b.ready(ctx, bytes)
		if err != nil {
			return nil, err
		}
		defer d.close()
		u, err := d.unit(ctx, fmt.Sprintf("UPDATE t SET kind = kind + 1 WHERE id = %d", rows/2))
		if err != nil {
			return nil, err
		}
		s, err := newSubject(d.path, u)
		if err != nil {
			return nil, err
		}
		defer s.close()
		runs = append(runs, s.whole(1))
		names = append(names, fmt.Sprintf("database of %s", size(int64(s.sh.Commit())*int64(u.pageSize))))
	}
	r, err := b.interleave(cpuClock, runs...)
	if err != nil {
		return nil, err
	}
	ratio := r[1].against(r[0])
	l := Line{Stage: "flat", What: "1-row unit, file to records", On: names[1]}.took(r[1], 1, "unit").
		versus("small database", ratio).atMost(ratio.Mid, 1.1, "1.1 x")
	if !b.flags.large {
		l.Note = "the promise is for 1 GiB: -large"
	}
	return []Line{
		Line{Stage: "flat", What: "1-row unit, file to records", On: names[0]}.took(r[0], 1, "unit"), l,
	}, nil
}

// exceptStage finds one changed row in 100 MiB, by pages and by SQL.
func exceptStage(ctx context.Context, b *bench) ([]Line, error) {
	d, rows, err := b.ready(ctx, 100<<20)
	if err != nil {
		return nil, err
	}
	defer d.close()
	before := filepath.Join(b.dir, "before.db")
	if err := copyFile(before, d.path); err != nil {
		return nil, err
	}
	u, err := d.unit(ctx, fmt.Sprintf("UPDATE t SET kind = kind + 1 WHERE id = %d", rows/3))
	if err != nil {
		return nil, err
	}
	s, err := newSubject(d.path, u)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r, err := b.interleave(cpuClock, s.whole(1))
	if err != nil {
		return nil, err
	}
	if err := d.exec(ctx, "ATTACH '"+before+"' AS before"); err != nil {
		return nil, err
	}
	start := cpuClock()
	var found int
	err = d.db.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT * FROM (SELECT * FROM main.t EXCEPT SELECT * FROM before.t)
		UNION ALL SELECT * FROM (SELECT * FROM before.t EXCEPT SELECT * FROM main.t))`).Scan(&found)
	if err != nil {
		return nil, err
	}
	if found != 2 {
		return nil, fmt.Errorf("EXCEPT found %d rows, not the row before and the row after", found)
	}
	took := float64(cpuClock() - start)
	on := fmt.Sprintf("1 of %d rows, %s", rows, size(int64(s.sh.Commit())*int64(u.pageSize)))
	l := Line{Stage: "except", What: "file to records", On: on}.took(r[0], 1, "unit")
	l.Value, l.Unit = took/l.NS, "x faster than EXCEPT"
	return []Line{
		{Stage: "except", What: "EXCEPT both ways", On: on, NS: took, Note: "once"},
		l.atLeast(l.Value, 1000, "1,000 x"),
	}, nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
