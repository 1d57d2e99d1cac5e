package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// tableRows is the table most units are made on: about 11,000 pages of 4 KiB.
const tableRows = 400_000

// change is a unit to be measured.
type change struct {
	name string
	rows int
	sql  string
}

// changes are units of one, a hundred and ten thousand rows, scattered (one
// row a page, so reading pages dominates) and together (all rows of a page,
// so writing rows dominates).
func changes() []change {
	return []change{
		{"1 row", 1, "UPDATE t SET kind = kind + 1 WHERE id = 200000"},
		{"100 rows, one a page", 100, "UPDATE t SET kind = kind + 1 WHERE id % 4000 = 0"},
		{"100 rows together", 100, "UPDATE t SET kind = kind + 1 WHERE id BETWEEN 100001 AND 100100"},
		{"10,000 rows, one a page", 10000, "UPDATE t SET kind = kind + 1 WHERE id % 40 = 0"},
		{"10,000 rows together", 10000, "UPDATE t SET kind = kind + 1 WHERE id BETWEEN 100001 AND 110000"},
	}
}

// eachChange makes every unit in turn on one table and hands it to measure.
func eachChange(ctx context.Context, b *bench, measure func(c change, s *subject) error) error {
	d, err := openDatabase(filepath.Join(b.dir, "table.db"))
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.exec(ctx, eightColumns, fill(tableRows)); err != nil {
		return err
	}
	for _, c := range changes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !strings.Contains(c.name, b.flags.match) {
			continue
		}
		u, err := d.unit(ctx, c.sql)
		if err != nil {
			return err
		}
		s, err := newSubject(d.path, u)
		if err != nil {
			return err
		}
		err = measure(c, s)
		if err := errors.Join(err, s.close()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// diffStage is the diff alone, from decoded pages to pairs of rows, against
// the decoding of the same unit and a bare comparison of the same pages.
func diffStage(ctx context.Context, b *bench) ([]Line, error) {
	var lines []Line
	err := eachChange(ctx, b, func(c change, s *subject) error {
		diff, err := s.diff(c.rows)
		if err != nil {
			return err
		}
		page := make([]byte, s.unit.pageSize)
		r, err := b.interleave(cpuClock,
			func() error { return libraryDecode(s.file, page) },
			diff,
			func() error { return ownDecode(s.file) },
			equalPages(s.unit))
		if err != nil {
			return err
		}
		n := len(s.unit.pgnos)
		ratio := r[1].against(r[0])
		lines = append(lines, Line{
			Stage: "diff", What: "diff alone, " + c.name, On: s.unit.String(),
			Note: fmt.Sprintf("%s x our decode, %s x bytes.Equal (%s GB/s), %s ns/page",
				number(r[1].against(r[2]).Mid), number(r[1].against(r[3]).Mid),
				number(float64(s.unit.bytes())/r[3].median()), number(r[1].median()/float64(n))),
		}.took(r[1], n, "page").mbps(s.unit.bytes()).versus(library, ratio).atMost(ratio.Mid, 0.5, "0.5 x"))
		return nil
	})
	return lines, err
}

// pathStage is the whole path, from the bytes of a file to the bytes of its
// records, against the decoding of the same file.
func pathStage(ctx context.Context, b *bench) ([]Line, error) {
	var lines []Line
	err := eachChange(ctx, b, func(c change, s *subject) error {
		page := make([]byte, s.unit.pageSize)
		r, err := b.interleave(cpuClock,
			func() error { return libraryDecode(s.file, page) },
			s.whole(int64(c.rows)))
		if err != nil {
			return err
		}
		ratio := r[1].against(r[0])
		l := Line{
			Stage: "path", What: "decode + diff + records, " + c.name, On: s.unit.String(),
			Note: fmt.Sprintf("%s ns/row", number(r[1].median()/float64(c.rows))),
		}.took(r[1], c.rows, "row").rate(float64(c.rows), "rows/s").versus(library, ratio)
		if c.rows == 100 {
			l = l.atMost(ratio.Mid, 1.5, "1.5 x")
		}
		lines = append(lines, l)
		return nil
	})
	return lines, err
}
