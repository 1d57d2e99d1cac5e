package envelope

import "fmt"

// Counts reports whether watermarks count records of this kind: all but
// watermarks themselves, recovered records and what repair made. A record in
// fragments counts once.
func Counts(e *Envelope, kind Kind) bool {
	return kind != KindWatermark && kind != KindRecovered && e.Origin != Repair
}

// Counter counts what a producer delivered of one stream's epoch since its
// last watermark: the commits and records of the next one. Its fields are
// plain so that they can be stored; a Counter restored from them goes on
// counting.
type Counter struct {
	// Positions is how many distinct positions had records that count.
	Positions uint64
	// Records is how many whole records count.
	Records uint64
	// Last is the highest position counted, zero when there is none. It may
	// be kept when the counts start anew after a watermark.
	Last Position
}

// Add counts one record, whole or a fragment, of a stream's records in the
// order of their positions.
func (c *Counter) Add(e *Envelope, kind Kind) error {
	if !Counts(e, kind) || e.Fragment != 1 {
		return nil
	}
	return c.AddEntry(e.Position, 1)
}

// AddEntry counts that many whole records at one position. None at all is no
// position. It fails when the position lies before one counted already, where
// distinct positions cannot be told any more.
func (c *Counter) AddEntry(p Position, records uint64) error {
	if records == 0 {
		return nil
	}
	order := p.Compare(c.Last)
	if order < 0 {
		return fmt.Errorf("count records at %s: after those at %s", p, c.Last)
	}
	if c.Records == 0 || order > 0 {
		c.Positions++
	}
	c.Records += records
	c.Last = p
	return nil
}

// Watermark is the watermark of what was counted since from (nil for the
// first of an epoch) through the given position.
func (c *Counter) Watermark(from *Position, through Position) *Watermark {
	return &Watermark{From: from, Through: through, Commits: c.Positions, Records: c.Records}
}
