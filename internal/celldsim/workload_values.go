package celldsim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// values draws column values.
type values struct {
	rand *rand.Rand
	cfg  *WorkloadConfig
}

// value makes a random value for a column: the text that stands for it in a
// statement and its argument. Most values fit the declared type, some do not,
// some are NULL where that is allowed.
func (v *values) value(c workColumn) (mark string, arg any) {
	if c.rowid {
		return "?", int64(v.rand.IntN(4*v.cfg.Rows)) - int64(v.cfg.Rows)/2
	}
	if c.key > 0 {
		return v.keyValue(c)
	}
	kind := c.kind
	switch n := v.rand.IntN(12); {
	case n == 0:
		return "?", nil
	case n == 1:
		kinds := columnKinds()
		kind = kinds[v.rand.IntN(len(kinds))]
	}
	switch kind {
	case "INTEGER":
		return "?", v.integer()
	case "REAL":
		return "?", v.real()
	case "BLOB":
		return "?", v.blob()
	case "NUMERIC":
		return "?", fmt.Sprintf("%d.%d", v.rand.IntN(100), v.rand.IntN(10))
	case "DATETIME":
		return "?", fmt.Sprintf("20%02d-01-02 03:04:05", v.rand.IntN(100))
	}
	if v.cfg.InvalidText && v.rand.IntN(10) == 0 {
		return "CAST(? AS TEXT)", []byte{'a', 0xff, byte(v.rand.IntN(256))}
	}
	return "?", v.text()
}

// keyValue makes a value for a key column, from a small set so that keys
// meet again.
func (v *values) keyValue(c workColumn) (mark string, arg any) {
	n := v.rand.IntN(2 * v.cfg.Rows)
	switch c.kind {
	case "INTEGER":
		return "?", int64(n)
	case "REAL":
		return "?", float64(n) / 4
	case "BLOB":
		return "?", []byte{byte(n >> 8), byte(n)}
	}
	key := fmt.Sprintf("Key%d", n)
	if v.rand.IntN(3) == 0 {
		key = strings.ToUpper(key) // the same key where NOCASE compares
	}
	if v.rand.IntN(50) == 0 {
		key += strings.Repeat("~", v.rand.IntN(v.cfg.MaxValue/4+1))
	}
	return "?", key
}

func (v *values) integer() int64 {
	switch v.rand.IntN(4) {
	case 0:
		return int64(v.rand.Uint64())
	case 1:
		return []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53, 127, -128, 32768}[v.rand.IntN(9)]
	}
	return int64(v.rand.IntN(2000)) - 1000
}

func (v *values) real() float64 {
	switch v.rand.IntN(4) {
	case 0:
		return []float64{0, math.Copysign(0, -1), 1e300, 5e-324, math.Inf(1), math.Inf(-1), 1e15, 9007199254740993}[v.rand.IntN(8)]
	case 1:
		return float64(v.rand.IntN(100))
	}
	return v.rand.NormFloat64() * 1000
}

// size is a random length: mostly short, now and then long enough to spill.
func (v *values) size() int {
	switch v.rand.IntN(12) {
	case 0:
		return v.rand.IntN(v.cfg.MaxValue + 1)
	case 1:
		return 0
	}
	return v.rand.IntN(40)
}

func (v *values) text() string {
	words := []string{"shelf", "Zoë", "日本", "🚂", "\x00", "\"q\"", "<a&b>", "\u2028", "\\", "\n"}
	n := v.size()
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[v.rand.IntN(len(words))])
	}
	return b.String()
}

func (v *values) blob() []byte {
	b := make([]byte, v.size())
	for i := range b {
		b[i] = byte(v.rand.Uint32())
	}
	return b
}
