package chain

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"celldexport/internal/celld"
	"celldexport/internal/ltxfile"
	"celldexport/internal/objstore"
)

const scope = "Cart:a"

// named makes a file out of "e3/0/1-5" (epoch, level, transactions), as far
// as its name goes.
func named(t testing.TB, spec string) File {
	t.Helper()
	f := File{Scope: scope}
	if _, err := fmt.Sscanf(spec, "e%d/%d/%d-%d", &f.Epoch, &f.Level, &f.Min, &f.Max); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	f.Object = objstore.Object{Key: celld.LTXKey(scope, f.Epoch, f.Level, f.Min, f.Max)}
	return f
}

// files makes a list out of names separated by spaces.
func files(t testing.TB, specs string) (list []File) {
	t.Helper()
	for _, s := range strings.Fields(specs) {
		list = append(list, named(t, s))
	}
	return list
}

func names(plan []File) string {
	var b []string
	for _, f := range plan {
		b = append(b, fmt.Sprintf("e%d/%d/%d-%d", f.Epoch, f.Level, f.Min, f.Max))
	}
	return strings.Join(b, " ")
}

// image is a database in memory, and the target of restores.
type image struct {
	pageSize, commit uint32
	pages            map[uint32]string
}

func (i *image) Resize(pageSize, commit uint32) error {
	if pageSize != i.pageSize || i.pages == nil {
		i.pages = map[uint32]string{}
	}
	i.pageSize, i.commit = pageSize, commit
	maps.DeleteFunc(i.pages, func(n uint32, _ string) bool { return n > commit })
	return nil
}

func (i *image) WritePage(pgno uint32, data []byte) error {
	if len(data) != int(i.pageSize) || pgno == 0 || pgno > i.commit {
		return fmt.Errorf("page %d of %d bytes in %d pages of %d", pgno, len(data), i.commit, i.pageSize)
	}
	i.pages[pgno] = string(data)
	return nil
}

func (i *image) clone() *image {
	return &image{i.pageSize, i.commit, maps.Clone(i.pages)}
}

// unit is what one file holds.
type unit struct {
	pageSize, commit uint32
	pages            map[uint32]string
}

// merge is what a compaction makes of units in order.
func merge(units []unit) unit {
	m := image{}
	for _, u := range units {
		_ = m.Resize(u.pageSize, u.commit)
		maps.Copy(m.pages, u.pages)
	}
	return unit(m)
}

// encode makes an LTX file.
func (u unit) encode(t testing.TB, lo, hi uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	h := ltxfile.Header{Flags: ltxfile.FlagNoChecksum, PageSize: u.pageSize, Commit: u.commit, MinTXID: lo, MaxTXID: hi}
	w, err := ltxfile.NewWriter(&b, h, ltxfile.Form(hi%2))
	if err != nil {
		t.Fatal(err)
	}
	for _, pgno := range slices.Sorted(maps.Keys(u.pages)) {
		if err := w.WritePage(pgno, []byte(u.pages[pgno])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(0); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// put stores a file under the name that spec says.
func put(t testing.TB, store objstore.Store, spec string, body []byte) {
	t.Helper()
	key := named(t, spec).Object.Key
	if _, err := store.Put(t.Context(), key, bytes.NewReader(body), int64(len(body)), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// page is content that says where it comes from.
func page(size uint32, label string, args ...any) string {
	s := fmt.Sprintf(label, args...) + ";"
	return strings.Repeat(s, int(size)/len(s)+1)[:size]
}
