package bucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"celldexport/internal/objstore"
)

const (
	// Prefix is where all objects of all nodes are.
	Prefix = "export/changes/"
	suffix = ".parquet"
)

// Name is the name of an object of the bucket sink. Micros only grows for a
// node: it is chosen after the PUT of the object before was acknowledged, so
// a reader that goes on after the last key it saw skips nothing.
type Name struct {
	Node string
	// Micros is in microseconds since the Unix epoch.
	Micros int64
	Rand   uint32
}

// Key is export/changes/<node>/yyyy/mm/dd/hh/<unix_us>-<rand>.parquet, in
// UTC.
func (n Name) Key() string {
	hour := time.UnixMicro(n.Micros).UTC().Format("2006/01/02/15")
	return fmt.Sprintf("%s%s/%s/%d-%08x%s", Prefix, n.Node, hour, n.Micros, n.Rand, suffix)
}

// ParseName reads a key back; false when it is not one that Key writes.
func ParseName(key string) (Name, bool) {
	rest, ok := strings.CutPrefix(key, Prefix)
	if !ok {
		return Name{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 6 {
		return Name{}, false
	}
	base, ok := strings.CutSuffix(parts[5], suffix)
	digits, random, dash := strings.Cut(base, "-")
	micros, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !dash || err != nil || micros < 0 {
		return Name{}, false
	}
	r, err := strconv.ParseUint(random, 16, 32)
	n := Name{Node: parts[0], Micros: micros, Rand: uint32(r)}
	return n, err == nil && n.Key() == key
}

// checkNode refuses a node name that would not stay one part of a key.
func checkNode(node string) error {
	if node == "" || node == "." || node == ".." || strings.ContainsAny(node, "/\x00") {
		return fmt.Errorf("node name %q cannot be part of an object key", node)
	}
	return nil
}

// Newest finds the newest object of a node, false when it has none. It looks
// back from now in growing steps, so that the listing stays short however
// long the node has been writing.
func Newest(ctx context.Context, store objstore.Store, node string, now time.Time) (Name, bool, error) {
	const hour = time.Hour
	for _, back := range []time.Duration{hour, 24 * hour, 30 * 24 * hour, 365 * 24 * hour, -1} {
		after := ""
		if back > 0 {
			after = Prefix + node + "/" + now.Add(-back).UTC().Format("2006/01/02/15") + "/"
		}
		var newest Name
		found := false
		for obj, err := range store.List(ctx, Prefix+node+"/", after) {
			if err != nil {
				return Name{}, false, fmt.Errorf("find the newest object of node %s: %w", node, err)
			}
			if n, ok := ParseName(obj.Key); ok && n.Micros >= newest.Micros {
				newest, found = n, true
			}
		}
		if found {
			return newest, true, nil
		}
	}
	return Name{}, false, nil
}
