package rowset

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"celldexport/diffpage"
	"celldexport/diffpage/shadow"
	"celldexport/envelope/apply"
)

// pages reads a database file the way the product does: page by page, from
// one unit to the next.
type pages struct {
	t    testing.TB
	path string
	last []byte
	base *diffpage.Base
}

func newPages(t testing.TB, path string) *pages {
	t.Helper()
	sh, err := shadow.Create(filepath.Join(t.TempDir(), "shadow"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sh.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := diffpage.NewBase(sh)
	if err != nil {
		t.Fatal(err)
	}
	return &pages{t: t, path: path, base: b}
}

// change is what the file became since the last call.
func (p *pages) change() *diffpage.Change {
	p.t.Helper()
	file, err := os.ReadFile(p.path)
	if err != nil {
		p.t.Fatal(err)
	}
	size := int(file[16])<<8 | int(file[17])
	if size == 1 {
		size = 65536 // the header has no room for it
	}
	images := shadow.NewImages(uint32(size), 1<<20, p.t.TempDir())
	for at := 0; at < len(file); at += size {
		page := file[at : at+size]
		if at >= len(p.last) || string(p.last[at:at+size]) != string(page) {
			if err := images.Add(uint32(at/size+1), page); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	c, err := p.base.Diff(images, uint32(len(file)/size))
	if err != nil {
		p.t.Fatal(err)
	}
	p.last = file
	return c
}

// Random streams over every page size and encoding: the tape compares what is
// made from pages with what is made from SELECT, byte by byte.
func TestPagesGiveTheSameRecords(t *testing.T) {
	for seed := range uint64(18) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := random{rand.New(rand.NewPCG(seed, 80))}
			s := newTape(t,
				fmt.Sprintf("PRAGMA page_size = %d", []int{512, 1024, 4096}[seed%3]),
				fmt.Sprintf("PRAGMA encoding = '%s'", []string{"UTF-8", "UTF-16le", "UTF-16be"}[seed/3%3]))
			createKinds(s.d)
			for range 20 {
				for range 1 + r.IntN(8) {
					s.d.try(r.statement())
				}
				s.unit()
			}
		})
	}
}

// A re-base shows from pages what it shows from SELECT.
func TestPagesGiveTheSameRebase(t *testing.T) {
	s := newTape(t, `CREATE TABLE _cf_METADATA(scope PRIMARY KEY, actor_name, incarnation)`, `INSERT INTO _cf_METADATA VALUES ('Shelf:a17', 'aisle 9', 5)`)
	r := random{rand.New(rand.NewPCG(1, 1))}
	createKinds(s.d)
	for range 200 {
		s.d.try(r.statement())
	}
	if err := s.p.change().Accept(); err != nil {
		t.Fatal(err)
	}
	img := ImageOf(s.p.base)
	name, incarnation, err := Metadata(img, "Shelf:a17")
	if err != nil || name == nil || *name != "aisle 9" || incarnation == nil || *incarnation != 5 {
		t.Errorf("metadata %v, %v, %v; want aisle 9 and 5", deref(name), deref(incarnation), err)
	}
	got := s.rebaseOf(img, "live")
	s.txid--
	clear(s.gens)
	want := s.rebase("live")
	check(t, got, want...)
	state := apply.New()
	addAll(t, state, got)
	held, uncertain := consumer(state)
	if diff := cmp.Diff(expected(s.d.capture()), held); diff != "" || len(uncertain) > 0 {
		t.Errorf("a consumer holds something else, uncertain %v (-select +consumer):\n%s", uncertain, diff)
	}
	if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, `"rows":[[`) }) {
		t.Error("the re-base shows no row")
	}
}
