package celldsim

import (
	"fmt"
	"math"
	"strings"
)

// value makes a random value for a column: the text that stands for it in a
// statement and its argument. Most values fit the declared type, some do not,
// some are NULL where that is allowed.
func (w *Workload) value(c workColumn) (mark string, arg any) {
	if c.rowid {
		return "?", int64(w.rand.IntN(4*w.cfg.Rows)) - int64(w.cfg.Rows)/2
	}
	if c.key > 0 {
		return w.keyValue(c)
	}
	kind := c.kind
	switch n := w.rand.IntN(12); {
	case n == 0:
		return "?", nil
	case n == 1:
		kinds := columnKinds()
		kind = kinds[w.rand.IntN(len(kinds))]
	}
	switch kind {
	case "INTEGER":
		return "?", w.integer()
	case "REAL":
		return "?", w.real()
	case "BLOB":
		return "?", w.blob()
	case "NUMERIC":
		return "?", fmt.Sprintf("%d.%d", w.rand.IntN(100), w.rand.IntN(10))
	case "DATETIME":
		return "?", fmt.Sprintf("20%02d-01-02 03:04:05", w.rand.IntN(100))
	}
	if w.cfg.InvalidText && w.rand.IntN(10) == 0 {
		return "CAST(? AS TEXT)", []byte{'a', 0xff, byte(w.rand.IntN(256))}
	}
	return "?", w.text()
}

// keyValue makes a value for a key column, from a small set so that keys
// meet again.
func (w *Workload) keyValue(c workColumn) (mark string, arg any) {
	n := w.rand.IntN(2 * w.cfg.Rows)
	switch c.kind {
	case "INTEGER":
		return "?", int64(n)
	case "REAL":
		return "?", float64(n) / 4
	case "BLOB":
		return "?", []byte{byte(n >> 8), byte(n)}
	}
	key := fmt.Sprintf("Key%d", n)
	if w.rand.IntN(3) == 0 {
		key = strings.ToUpper(key) // the same key where NOCASE compares
	}
	if w.rand.IntN(50) == 0 {
		key += strings.Repeat("~", w.rand.IntN(w.cfg.MaxValue/4+1))
	}
	return "?", key
}

func (w *Workload) integer() int64 {
	switch w.rand.IntN(4) {
	case 0:
		return int64(w.rand.Uint64())
	case 1:
		return []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53, 127, -128, 32768}[w.rand.IntN(9)]
	}
	return int64(w.rand.IntN(2000)) - 1000
}

func (w *Workload) real() float64 {
	switch w.rand.IntN(4) {
	case 0:
		return []float64{0, math.Copysign(0, -1), 1e300, 5e-324, math.Inf(1), math.Inf(-1), 1e15, 9007199254740993}[w.rand.IntN(8)]
	case 1:
		return float64(w.rand.IntN(100))
	}
	return w.rand.NormFloat64() * 1000
}

// size is a random length: mostly short, now and then long enough to spill.
func (w *Workload) size() int {
	switch w.rand.IntN(12) {
	case 0:
		return w.rand.IntN(w.cfg.MaxValue + 1)
	case 1:
		return 0
	}
	return w.rand.IntN(40)
}

func (w *Workload) text() string {
	words := []string{"shelf", "Zoë", "日本", "🚂", "\x00", "\"q\"", "<a&b>", "\u2028", "\\", "\n"}
	n := w.size()
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[w.rand.IntN(len(words))])
	}
	return b.String()
}

func (w *Workload) blob() []byte {
	b := make([]byte, w.size())
	for i := range b {
		b[i] = byte(w.rand.Uint32())
	}
	return b
}
