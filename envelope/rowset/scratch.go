package rowset

import "errors"

// Scratch is memory that units use one after the other, of however many
// plans, so that a small unit does not begin by growing buffers. The zero
// value is ready. Between two units it holds no more than about MemoryBytes
// and no file. Only one unit may use it at a time.
type Scratch struct {
	rows store
	sort sorter
	enc  encoder // its buffers go from table to table
}

// prepare sets the bounds of the next unit.
func (s *Scratch) prepare(opt *Options) {
	half := max(opt.MemoryBytes/2, 1)
	s.rows.Limit, s.rows.Dir = half, opt.TempDir
	s.sort.limit = half
	s.sort.spill.Limit, s.sort.spill.Dir = 1, opt.TempDir
}

// rest frees temporary files, and memory that an entry out of the ordinary
// took.
func (s *Scratch) rest() error {
	err := errors.Join(s.rows.rest(), s.sort.rest())
	s.enc.shape, s.enc.opt = nil, nil
	for _, b := range []*[]byte{&s.enc.line, &s.enc.key, &s.enc.text, &s.enc.value} {
		if int64(cap(*b)) > s.rows.Limit {
			*b = nil
		}
	}
	return err
}
