package diffpage

import "encoding/binary"

// claim is the new owner of a page.
type claim struct {
	pgno uint32
	own  owner
}

// claimLog is claims in the order in which they were made. A unit that
// rewrites a database claims all of its pages, so each is kept as its
// difference to the one before: three or four bytes mostly, never more than
// maxClaim.
type claimLog struct {
	blocks [][]byte
	n      int
	last   claimCoder
}

const (
	maxClaim       = 3 * binary.MaxVarintLen64
	minClaimsBlock = 16 * maxClaim
	maxClaimsBlock = 64 << 10
)

// claimCoder is what the next claim is a difference to.
type claimCoder struct {
	pgno    uint32
	parents [4]uint32 // by role
}

// base is what the parent of a claim lies close to: the head of a chain comes
// before its other pages, the parents of other pages are mostly those of the
// last one of their role.
func (c *claimCoder) base(pgno uint32, r role) uint32 {
	if r == roleRest {
		return pgno
	}
	return c.parents[r&3]
}

func (c *claimCoder) append(dst []byte, x claim) []byte {
	r := x.own.role()
	dst = binary.AppendVarint(dst, int64(x.pgno)-int64(c.pgno))
	dst = binary.AppendUvarint(dst, uint64(x.own.slot())<<2|uint64(r&3))
	dst = binary.AppendVarint(dst, int64(x.own.parent())-int64(c.base(x.pgno, r)))
	c.pgno, c.parents[r&3] = x.pgno, x.own.parent()
	return dst
}

// next is the claim at the start of src, and how many bytes it takes.
func (c *claimCoder) next(src []byte) (claim, int) {
	page, n := binary.Varint(src)
	kind, k := binary.Uvarint(src[n:])
	n += k
	parent, k := binary.Varint(src[n:])
	n += k
	pgno, r := uint32(int64(c.pgno)+page), role(kind&3)
	up := uint32(int64(c.base(pgno, r)) + parent)
	c.pgno, c.parents[r] = pgno, up
	return claim{pgno, newOwner(r, uint32(kind>>2), up)}, n
}

func (l *claimLog) add(x claim) {
	k := len(l.blocks) - 1
	if k < 0 || cap(l.blocks[k])-len(l.blocks[k]) < maxClaim {
		size := minClaimsBlock
		if k >= 0 {
			size = min(2*cap(l.blocks[k]), maxClaimsBlock)
		}
		l.blocks = append(l.blocks, make([]byte, 0, size))
		k++
	}
	l.blocks[k] = l.last.append(l.blocks[k], x)
	l.n++
}

// each shows the claims in order. An error of visit ends the walk and is
// returned.
func (l *claimLog) each(visit func(claim) error) error {
	var c claimCoder
	for _, b := range l.blocks {
		for len(b) > 0 {
			x, n := c.next(b)
			if err := visit(x); err != nil {
				return err
			}
			b = b[n:]
		}
	}
	return nil
}

// empty is a log without claims and with the memory of this one, which is not
// to be used any more.
func (l *claimLog) empty() claimLog {
	if k := len(l.blocks); k > 0 {
		l.blocks[0] = l.blocks[k-1][:0] // the largest
		clear(l.blocks[1:])
		return claimLog{blocks: l.blocks[:1]}
	}
	return claimLog{}
}
