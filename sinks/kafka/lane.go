package kafka

// ticket stands for a message while it is under way.
type ticket struct {
	flight *flight
	index  int64
	bytes  int64
}

// lane is what is under way to one partition, in the order in which it was
// handed over. A report says only which partition it is of; that suffices. The
// idempotent producer stores a partition's messages in their order and without
// a hole, so the n-th message that arrived is the n-th of the lane, as long as
// none failed.
type lane struct {
	ring    []ticket // its length is 0 or a power of two
	head, n int
	// broken is set by the first failure: which of the messages behind it a
	// later report means is not certain, so none of them counts as arrived.
	broken bool
}

// lanes are all messages under way.
type lanes struct {
	of    []lane // by partition
	open  int
	bytes int64
}

// push puts a message at the end of a partition's lane.
func (s *lanes) push(part int32, t ticket) {
	for int(part) >= len(s.of) {
		s.of = append(s.of, lane{})
	}
	s.of[part].push(t)
	s.add(t, 1)
}

// pop takes the oldest message of a partition out and tells whether one
// before it failed. There is none when ok is false.
func (s *lanes) pop(part int32) (t ticket, broken, ok bool) {
	if part < 0 || int(part) >= len(s.of) || s.of[part].n == 0 {
		return ticket{}, false, false
	}
	l := &s.of[part]
	t = l.pop()
	s.add(t, -1)
	return t, l.broken, true
}

// unpush takes the youngest message of a partition back.
func (s *lanes) unpush(part int32) { s.add(s.of[part].unpush(), -1) }

func (s *lanes) add(t ticket, n int) {
	t.flight.open += n
	s.open += n
	s.bytes += int64(n) * t.bytes
}

// push puts a message at the end.
func (l *lane) push(t ticket) {
	if l.n == len(l.ring) {
		larger := make([]ticket, max(64, 2*l.n))
		k := copy(larger, l.ring[l.head:])
		copy(larger[k:], l.ring[:l.head])
		l.ring, l.head = larger, 0
	}
	l.ring[(l.head+l.n)&(len(l.ring)-1)] = t
	l.n++
}

// pop takes the oldest message out.
func (l *lane) pop() ticket {
	t := l.ring[l.head]
	l.ring[l.head].flight = nil
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.n--
	return t
}

// unpush takes the youngest message back.
func (l *lane) unpush() ticket {
	l.n--
	at := &l.ring[(l.head+l.n)&(len(l.ring)-1)]
	t := *at
	at.flight = nil
	return t
}
