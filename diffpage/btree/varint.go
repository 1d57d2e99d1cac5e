package btree

// varint reads a variable-length integer of at most nine bytes, big-endian,
// seven bits each, eight in the ninth (SQLite file format 1.6). n is 0 when b
// ends inside it.
func varint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return longVarint(b)
}

// longVarint reads one of more than one byte. Two and three are by far the
// most frequent.
func longVarint(b []byte) (v uint64, n int) {
	if len(b) > 2 {
		if b[1] < 0x80 {
			return uint64(b[0]&0x7f)<<7 | uint64(b[1]), 2
		}
		if b[2] < 0x80 {
			return uint64(b[0]&0x7f)<<14 | uint64(b[1]&0x7f)<<7 | uint64(b[2]), 3
		}
	}
	for i := range min(len(b), 9) {
		c := b[i]
		if i == 8 {
			return v<<8 | uint64(c), 9
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
