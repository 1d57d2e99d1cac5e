package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"celldexport/internal/ltxfile"
)

// library is how the floor of decoding is called in the table.
const library = "superfly/ltx decode"

// decodeStage reads every page of a file, as frames and as blocks.
func decodeStage(ctx context.Context, b *bench) ([]Line, error) {
	d, err := openDatabase(filepath.Join(b.dir, "decode.db"))
	if err != nil {
		return nil, err
	}
	defer d.close()
	u, err := d.unit(ctx, eightColumns, fill(36000))
	if err != nil {
		return nil, err
	}
	var lines []Line
	page := make([]byte, u.pageSize)
	for _, form := range []struct {
		name string
		form ltxfile.Form
	}{{"LZ4 frames", ltxfile.Frame}, {"LZ4 blocks", ltxfile.Block}} {
		file, err := u.ltx(form.form)
		if err != nil {
			return nil, err
		}
		r, err := b.interleave(cpuClock,
			func() error { return libraryDecode(file, page) },
			func() error { return ownDecode(file) })
		if err != nil {
			return nil, err
		}
		on := fmt.Sprintf("%v, file %s, %s", u, size(int64(len(file))), form.name)
		lines = append(lines,
			Line{Stage: "decode", What: library, On: on}.took(r[0], len(u.pgnos), "page").mbps(u.bytes()),
			Line{Stage: "decode", What: "ours, all checks", On: on}.took(r[1], len(u.pgnos), "page").mbps(u.bytes()).
				versus(library, r[1].against(r[0])))
	}
	return lines, nil
}

// equalPages is a contender: what no diff can be faster than, a look at both
// images of every page.
func equalPages(u *unit) func() error {
	other := make([][]byte, len(u.pages))
	for i, p := range u.pages {
		other[i] = bytes.Clone(p)
	}
	return func() error {
		for i, p := range u.pages {
			if !bytes.Equal(p, other[i]) {
				return fmt.Errorf("page %d is not its copy", u.pgnos[i])
			}
		}
		return nil
	}
}
