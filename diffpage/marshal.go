package diffpage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"celldexport/diffpage/shadow"
)

// The form of a kept owner map, big-endian: magic, tag, page size, page count,
// number of slots, per slot name, root page and kind, then 8 bytes for every
// page, then SHA-256 of all before. Strings have a 4-byte length.
const ownersMagic = "exportd owners 1"

// MarshalOwners is the owner map in a form to be kept beside the shadow, so
// that a later OpenBase need not read every page. The tag names the state, the
// way the caller names it (epoch and txid, say). ErrStale is wrapped when the
// shadow is not the one the base knows any more.
func (b *Base) MarshalOwners(tag string) ([]byte, error) {
	if n := len(b.owners) - 1; max(n, 0) != int(b.shadow.Commit()) {
		return nil, fmt.Errorf("keep the owner map of %d pages for a shadow of %d: %w", n, b.shadow.Commit(), ErrStale)
	}
	out := make([]byte, 0, len(ownersMagic)+len(tag)+64*len(b.slots.names)+8*len(b.owners)+64)
	out = append(out, ownersMagic...)
	out = appendString(out, tag)
	out = binary.BigEndian.AppendUint32(out, b.shadow.PageSize())
	out = binary.BigEndian.AppendUint32(out, b.shadow.Commit())
	out = binary.BigEndian.AppendUint32(out, uint32(len(b.slots.names)))
	for i, name := range b.slots.names {
		t := b.slots.trees[i]
		out = appendString(out, name)
		out = binary.BigEndian.AppendUint32(out, t.root)
		out = append(out, 0)
		if t.index {
			out[len(out)-1] = 1
		}
	}
	for pgno := uint32(1); pgno <= b.shadow.Commit(); pgno++ {
		out = binary.BigEndian.AppendUint64(out, uint64(b.owners.of(pgno)))
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...), nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// OpenBase is NewBase with an owner map that MarshalOwners gave out under the
// same tag, of which only the schema has to be read again. ErrStale is wrapped
// when the map is damaged, has another tag, or does not fit the shadow or its
// schema; NewBase helps then.
func OpenBase(sh *shadow.Shadow, tag string, owners []byte, opts ...Option) (*Base, error) {
	b := newBase(sh, opts)
	if err := b.unmarshal(tag, owners); err != nil {
		return nil, fmt.Errorf("open a kept owner map: %w", err)
	}
	v := b.view()
	if err := v.header(); err != nil {
		return nil, fmt.Errorf("open a kept owner map: %w", err)
	}
	b.usable = v.usable
	entries, err := catalog(&v)
	if err != nil {
		return nil, fmt.Errorf("open a kept owner map: %w", err)
	}
	if b.schema, err = b.shared.schemas.Load(v.enc, entries); err != nil {
		return nil, fmt.Errorf("open a kept owner map: %w", err)
	}
	trees := 0
	for _, t := range b.schema.Tables {
		if t.Root == 0 {
			continue
		}
		trees++
		if b.slots.of(t.Name).root != t.Root {
			return nil, fmt.Errorf("open a kept owner map: table %q is at another root page: %w", t.Name, ErrStale)
		}
	}
	if trees != len(b.slots.byName) {
		return nil, fmt.Errorf("open a kept owner map: it knows %d tables, the schema %d: %w", len(b.slots.byName), trees, ErrStale)
	}
	return b, nil
}

func (b *Base) unmarshal(tag string, data []byte) error {
	n := len(data) - sha256.Size
	if n < 0 {
		return fmt.Errorf("it has %d bytes: %w", len(data), ErrStale)
	}
	if sum := sha256.Sum256(data[:n]); !bytes.Equal(sum[:], data[n:]) {
		return fmt.Errorf("its checksum is wrong: %w", ErrStale)
	}
	in := reader{data: data[:n]}
	if magic := in.bytes(len(ownersMagic)); string(magic) != ownersMagic {
		return fmt.Errorf("it has another form: %w", ErrStale)
	}
	if got := in.string(); got != tag {
		return fmt.Errorf("it belongs to state %q, not %q: %w", got, tag, ErrStale)
	}
	pageSize, commit := in.uint32(), in.uint32()
	if pageSize != b.shadow.PageSize() || commit != b.shadow.Commit() {
		return fmt.Errorf("it is of %d pages of %d bytes, the shadow has %d of %d: %w", commit, pageSize, b.shadow.Commit(), b.shadow.PageSize(), ErrStale)
	}
	b.slots = newSlots()
	for slot := range in.uint32() {
		name, t := in.string(), tree{root: in.uint32(), index: in.byte() == 1}
		if in.short {
			break
		}
		if slot == schemaSlot {
			b.slots.trees[schemaSlot] = t
			continue
		}
		b.slots.names, b.slots.trees = append(b.slots.names, name), append(b.slots.trees, t)
		if t.root != 0 {
			b.slots.byName[name] = slot
		}
	}
	pages := in.bytes(8 * int(commit))
	if in.short || len(in.data) > 0 {
		return errors.Join(errors.New("its length does not fit its content"), ErrStale)
	}
	b.owners = make(ownerMap, int(commit)+1)
	for i := range int(commit) {
		b.owners[i+1] = owner(binary.BigEndian.Uint64(pages[8*i:]))
	}
	return nil
}

// reader takes values off data; short says that there was not enough.
type reader struct {
	data  []byte
	short bool
}

func (r *reader) bytes(n int) []byte {
	if r.short || n < 0 || n > len(r.data) {
		r.short = true
		return nil
	}
	out := r.data[:n]
	r.data = r.data[n:]
	return out
}

func (r *reader) uint32() uint32 {
	b := r.bytes(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (r *reader) byte() byte {
	b := r.bytes(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (r *reader) string() string { return string(r.bytes(int(r.uint32()))) }
