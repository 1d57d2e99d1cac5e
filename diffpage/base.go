package diffpage

import (
	"errors"
	"fmt"
	"sync"

	"celldexport/diffpage/schema"
	"celldexport/diffpage/shadow"
)

// Base is the state of one database at its last accepted unit: its pages, the
// table every page belongs to (8 bytes per page), and its schema. It is not
// safe for concurrent use.
type Base struct {
	shadow  *shadow.Shadow
	owners  ownerMap
	slots   *slots
	schema  *schema.Schema
	usable  int
	shared  *Shared
	memory  int64
	tempDir string
	version uint64 // counts accepted changes
}

// Option changes how a Base works.
type Option func(*Base)

// Shared is what many bases can have in common: schemas that were read, and
// the memory of diffs that are over. The zero value is ready; it is safe for
// concurrent use.
type Shared struct {
	schemas schema.Cache
	differs sync.Pool // of *differ
}

// WithShared has a base use what others use too. A base without it has one of
// its own.
func WithShared(s *Shared) Option { return func(b *Base) { b.shared = s } }

func (s *Shared) differ() *differ {
	if d, ok := s.differs.Get().(*differ); ok {
		return d
	}
	return newDiffer()
}

// mostReused is how many pages a unit may have touched whose differ is used
// again: what it grew to is worth keeping only for units like most.
const mostReused = 1 << 12

// giveBack takes a differ that nobody uses any more.
func (s *Shared) giveBack(d *differ) {
	_ = d.file.close() // all that was to be read of it was
	if d.claims.n > mostReused || d.held > mostReused*pairSize {
		return
	}
	d.delta = delta{changed: d.changed.empty()}
	d.register = register{released: d.released.empty(), claimed: d.claimed.empty(), claims: d.claims.empty()}
	for _, t := range d.order {
		t.empty()
	}
	d.spare, d.order = append(d.spare, d.order...), d.order[:0]
	clear(d.tables)
	d.owners, d.before, d.after = nil, nil, nil
	d.excerpts.clear()
	s.differs.Put(d)
}

// WithMemory bounds what one diff holds in memory beyond the unit's own page
// images and a few bytes per touched page: old pages it would otherwise read
// twice, and the keys of a WITHOUT ROWID join. In bytes; 4 MiB when not given.
func WithMemory(n int64) Option { return func(b *Base) { b.memory = n } }

// WithTempDir names the directory for what does not fit that memory, in files
// without a name. The system's directory for such files when not given.
func WithTempDir(dir string) Option { return func(b *Base) { b.tempDir = dir } }

// NewBase takes over the state the shadow holds, staged units included; an
// empty one is allowed. It reads every page of every table once to learn whose
// it is. The shadow must not be changed by others while the base is in use,
// except for Flush and Sync.
func NewBase(sh *shadow.Shadow, opts ...Option) (*Base, error) {
	b := newBase(sh, opts)
	b.slots = newSlots()
	b.schema = schema.New(schema.UTF8)
	d := newDiffer()
	b.prepare(d, b.view())
	d.old = view{pageSize: d.new.pageSize, usable: d.new.usable, enc: d.new.enc}
	d.reset, d.scratch = true, make(ownerMap, int(d.new.commit)+1)
	if err := d.new.header(); err != nil {
		return nil, fmt.Errorf("map the pages of a database: %w", err)
	}
	after, err := d.run(nil, b)
	if err = errors.Join(err, d.file.close()); err != nil {
		return nil, fmt.Errorf("map the pages of a database: %w", err)
	}
	b.owners, b.slots, b.schema, b.usable = d.scratch, d.after, after, d.new.usable
	return b, nil
}

func newBase(sh *shadow.Shadow, opts []Option) *Base {
	b := &Base{shadow: sh, memory: 4 << 20}
	for _, o := range opts {
		o(b)
	}
	if b.shared == nil {
		b.shared = new(Shared)
	}
	return b
}

// view is the present state.
func (b *Base) view() view {
	v := view{pageSize: b.shadow.PageSize(), commit: b.shadow.Commit(), usable: b.usable, sh: b.shadow}
	if b.schema != nil {
		v.enc = b.schema.Encoding
	}
	return v
}

// Schema is the schema of the present state.
func (b *Base) Schema() *schema.Schema { return b.schema }

// Scan shows every row of the table in the present state as Insert, in the
// order of the tree: ascending rowids, or the order of the primary key.
func (b *Base) Scan(name string, visit Visitor) error {
	t := b.schema.ByName(name)
	if t == nil {
		return fmt.Errorf("scan table %q: %w", name, ErrNoTable)
	}
	v := b.view()
	return scan(&v, t, b.slots.of(name), Insert, visit)
}

// Diff compares the present state with the one that the images and a length
// of commit pages make of it. Images equal to the page they replace are
// dropped from the set. On success the images belong to the Change; on an
// error they stay with the caller and the base is as it was.
func (b *Base) Diff(images *shadow.Images, commit uint32) (*Change, error) {
	d := b.shared.differ()
	b.prepare(d, view{pageSize: images.PageSize(), commit: commit, sh: b.shadow, images: images})
	d.old = b.view()
	if d.old.commit == 0 {
		d.old.pageSize = images.PageSize()
	}
	after, err := b.diff(d, images)
	if err != nil {
		err = fmt.Errorf("diff a unit of %d pages against %d: %w", commit, d.old.commit, err)
		b.shared.giveBack(d)
		return nil, err
	}
	return &Change{base: b, d: d, images: images, before: b.schema, after: after, commit: commit, version: b.version}, nil
}

func (b *Base) diff(d *differ, images *shadow.Images) (*schema.Schema, error) {
	if err := compare(d, images, b.memory); err != nil {
		return nil, err
	}
	d.new.usable, d.new.enc = d.old.usable, d.old.enc
	if d.new.commit == 0 || images.Has(1) {
		if err := d.new.header(); err != nil {
			return nil, err
		}
		if d.new.usable != d.old.usable || d.new.enc != d.old.enc {
			d.reset = true
		}
	}
	after, err := d.run(images, b)
	if err != nil || images.PageSize() != d.old.pageSize {
		return after, err
	}
	// Only now: had a table referred to a page that is missing, its name would
	// be known.
	return after, d.complete(images, d.old.commit)
}

// prepare points a differ at the present state and the one to come.
func (b *Base) prepare(d *differ, after view) {
	d.new, d.owners, d.before, d.after = after, b.owners, b.slots, b.slots
	d.file, d.memory, d.held = spillFile{dir: b.tempDir, block: d.file.block}, b.memory, 0
}

// run is the diff once it is known which pages changed: first sqlite_schema,
// then, by the schema it leads to, every table that is concerned.
func (d *differ) run(images *shadow.Images, b *Base) (*schema.Schema, error) {
	d.distribute(images)
	after := b.schema
	if root := (tree{root: min(d.new.commit, 1)}); d.tables[schemaSlot] != nil || root != d.before.trees[schemaSlot] {
		d.after = d.before.clone()
		d.after.trees[schemaSlot] = root
		if err := d.table(d.tableOf(schemaSlot), nil, nil); err != nil {
			return nil, err
		}
		entries, err := catalog(&d.new)
		if err != nil {
			return nil, err
		}
		if after, err = b.shared.schemas.Load(d.new.enc, entries); err != nil {
			if errors.Is(err, schema.ErrNames) {
				err = fmt.Errorf("%w: %w", err, ErrCorrupt)
			}
			return nil, blame(schemaTable, 1, err)
		}
		if err := d.pair(after); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(d.order); i++ {
		if t := d.order[i]; t.slot != schemaSlot {
			if err := d.table(t, b.schema.ByName(t.name), after.ByName(t.name)); err != nil {
				return nil, err
			}
		}
	}
	return after, d.check()
}

// adopt moves the map to the new state.
func (b *Base) adopt(d *differ, after *schema.Schema) {
	if d.reset {
		b.owners = make(ownerMap, int(d.new.commit)+1)
	}
	b.owners = b.owners.resize(d.new.commit)
	forget := func(pgno uint32) {
		if int(pgno) < len(b.owners) {
			b.owners[pgno] = 0
		}
	}
	d.changed.each(forget)
	d.released.each(forget)
	_ = d.claims.each(func(c claim) error { b.owners[c.pgno] = c.own; return nil })
	b.slots, b.schema, b.usable = d.after, after, d.new.usable
	b.version++
}

// of is the tree of the table stored under the name.
func (s *slots) of(name string) tree {
	if slot, ok := s.byName[name]; ok {
		return s.trees[slot]
	}
	return tree{}
}
