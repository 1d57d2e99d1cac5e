package envelope

import (
	"cmp"
	"strconv"
)

// Compare orders positions by epoch, then txid, then commit: negative when p
// is before q, positive when it is after.
func (p Position) Compare(q Position) int {
	return cmp.Or(
		cmp.Compare(p.Epoch, q.Epoch),
		cmp.Compare(p.TXID, q.TXID),
		cmp.Compare(p.Commit, q.Commit),
	)
}

// String is e<epoch>:<txid>:<commit>, for people.
func (p Position) String() string {
	b := append(make([]byte, 0, 32), 'e')
	b = strconv.AppendUint(b, p.Epoch, 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, p.TXID, 10)
	b = append(b, ':')
	return string(strconv.AppendUint(b, p.Commit, 10))
}

// Rank is the precedence of an origin at equal positions: 2 for repair, 1 for
// snapshot, 0 for live.
func (o Origin) Rank() int {
	switch o {
	case Repair:
		return 2
	case Snapshot:
		return 1
	default:
		return 0
	}
}

// valid reports whether o is one of the three origins.
func (o Origin) valid() bool { return o == Live || o == Snapshot || o == Repair }
