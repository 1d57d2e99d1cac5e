package envelope

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"
)

// AppendKey appends the stream's Kafka message key: script, class, cell and
// facet, each followed by a zero byte, then the incarnation as eight bytes,
// big-endian. A topic that partitions by it keeps a stream in order.
func (s Stream) AppendKey(dst []byte) []byte {
	for _, part := range [...]string{s.Script, s.Class, s.Cell, s.Facet} {
		dst = append(dst, part...)
		dst = append(dst, 0)
	}
	return binary.BigEndian.AppendUint64(dst, s.Incarnation)
}

// Key is the stream's Kafka message key; see [Stream.AppendKey].
func (s Stream) Key() []byte {
	n := len(s.Script) + len(s.Class) + len(s.Cell) + len(s.Facet) + 4 + 8
	return s.AppendKey(make([]byte, 0, n))
}

// Compare orders streams by script, class, cell, facet and incarnation.
func (s Stream) Compare(t Stream) int {
	return cmp.Or(
		strings.Compare(s.Script, t.Script),
		strings.Compare(s.Class, t.Class),
		strings.Compare(s.Cell, t.Cell),
		strings.Compare(s.Facet, t.Facet),
		cmp.Compare(s.Incarnation, t.Incarnation),
	)
}

// String is script/cell[/facet]@incarnation, for people. The class is the
// cell's part before its first colon.
func (s Stream) String() string {
	scope := s.Cell
	if s.Facet != "" {
		scope += "/" + s.Facet
	}
	return s.Script + "/" + scope + "@" + strconv.FormatUint(s.Incarnation, 10)
}
