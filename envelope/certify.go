package envelope

import (
	"maps"
	"slices"
	"sort"
)

// Census is the consumer's side of the counting: the whole records held of
// one stream by position, and the watermarks that they are checked against.
// The zero value is ready. Everything added is a set: order does not matter,
// but a record must be added once.
type Census struct {
	at    map[Position]uint64
	marks []Watermark
	// order are the positions, ascending, and upTo the records through each;
	// both are rebuilt when something was added.
	order []Position
	upTo  []uint64
}

// Add counts a whole record, if it is of those that count.
func (c *Census) Add(e *Envelope, kind Kind) {
	if !Counts(e, kind) {
		return
	}
	if c.at == nil {
		c.at = map[Position]uint64{}
	}
	c.at[e.Position]++
	c.order = nil
}

// Mark adds a watermark.
func (c *Census) Mark(w *Watermark) { c.marks = append(c.marks, *w) }

// Between counts the distinct positions and the records after from, through
// the other position; nil is from the start of that position's epoch.
func (c *Census) Between(from *Position, through Position) (positions, records uint64) {
	c.sum()
	end := sort.Search(len(c.order), func(i int) bool { return c.order[i].Compare(through) > 0 })
	start := sort.Search(len(c.order), func(i int) bool {
		if from == nil {
			return c.order[i].Epoch >= through.Epoch
		}
		return c.order[i].Compare(*from) > 0
	})
	if start >= end {
		return 0, 0
	}
	records = c.upTo[end-1]
	if start > 0 {
		records -= c.upTo[start-1]
	}
	return uint64(end - start), records
}

func (c *Census) sum() {
	if c.order != nil || len(c.at) == 0 {
		return
	}
	c.order = slices.SortedFunc(maps.Keys(c.at), Position.Compare)
	c.upTo = make([]uint64, len(c.order))
	var n uint64
	for i, p := range c.order {
		n += c.at[p]
		c.upTo[i] = n
	}
}

// Valid reports whether what is held in the watermark's range is as many
// records, at as many positions, as it says.
func (c *Census) Valid(w *Watermark) bool {
	positions, records := c.Between(w.From, w.Through)
	return positions == w.Commits && records == w.Records
}

// Certified is, per epoch, the highest position that a chain of valid
// watermarks reaches: the first from the start of the epoch, each other from
// where one before it ended. Epochs without a chain are absent.
func (c *Census) Certified() map[uint64]Position {
	marks := slices.SortedFunc(slices.Values(c.marks), func(v, w Watermark) int {
		return v.Through.Compare(w.Through)
	})
	// Ascending by end, so where a watermark starts is decided before it, and
	// one that does not go forward joins nothing.
	reached := map[Position]bool{}
	top := map[uint64]Position{}
	for i := range marks {
		w := &marks[i]
		joined := w.From == nil || reached[*w.From] && w.From.Epoch == w.Through.Epoch
		if joined && c.Valid(w) {
			reached[w.Through] = true
			top[w.Through.Epoch] = w.Through
		}
	}
	return top
}
