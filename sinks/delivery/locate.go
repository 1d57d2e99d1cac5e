package delivery

// Locator is implemented by sinks whose records lie in places that can be
// removed again, each known by a number that only grows.
type Locator interface {
	// Located tells, during a call of Queue.Ack, the first and the last place
	// that hold records of the entries acknowledged; 0, 0 when none do.
	Located() (first, last int64)
}

// located is where records of an account lie. The zero value says nothing.
type located struct{ first, last int64 }

// extend adds places to where records lie.
func (l *located) extend(by located) {
	if by == (located{}) {
		return
	}
	if *l == (located{}) {
		*l = by
		return
	}
	l.first, l.last = min(l.first, by.first), max(l.last, by.last)
}

// where is what the sink tells of the acknowledgement it is making.
func (o *outlet) where() located {
	if l, ok := o.sink.(Locator); ok {
		first, last := l.Located()
		return located{first, last}
	}
	return located{}
}
