package celld

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Names inside the directory of one epoch, <watch>/<scope>/ltx/e<epoch>.
const (
	// DatabaseName is the live database. It is never opened by a sidecar.
	DatabaseName = "db.sqlite"
	// EvictedName is the database as an eviction left it: the live file
	// renamed, with neither WAL nor LTX files beside it.
	EvictedName = "db.evicted"
	// HibernatedName is EvictedName as celld 0.3 and older spell it.
	HibernatedName = "db.hibernated"
	// MetaDirName holds the captured LTX files; it vanishes with the
	// residency.
	MetaDirName = ".db.sqlite-litestream"
	// LTXDirName is the directory of the captured files below the epoch's
	// directory. Only level 0 exists on a node's disk.
	LTXDirName = MetaDirName + "/ltx/0"
	// FacetsDirName is the directory of a cell or facet that holds the
	// facets directly below it.
	FacetsDirName = facetsSegment
	// EpochsDirName is the directory of a cell or facet that holds its
	// epochs.
	EpochsDirName = "ltx"
)

// peerlogName is where a node keeps log entries of other nodes.
const peerlogName = "peerlog"

// IsCellDir reports whether a name at the root of the watched tree is a cell
// that an exporter looks at. Names that start with a dot are scratch areas or
// cron cells, which are never exported; peerlog holds other nodes' data.
func IsCellDir(name string) bool {
	return !strings.HasPrefix(name, ".") && name != peerlogName && CheckCellName(name) == nil
}

// ScopeDir is the directory of a scope below the watched tree.
func ScopeDir(watch string, s Scope) string {
	return filepath.Join(watch, filepath.FromSlash(s.String()))
}

// EpochDir is the directory of one epoch of a scope.
func EpochDir(watch string, s Scope, epoch uint64) string {
	return filepath.Join(ScopeDir(watch, s), EpochsDirName, EpochName(epoch))
}

// LTXDir is the directory that the node captures LTX files into.
func LTXDir(watch string, s Scope, epoch uint64) string {
	return filepath.Join(EpochDir(watch, s, epoch), filepath.FromSlash(LTXDirName))
}

// EpochName is the directory and key segment of an epoch: "e" and the decimal
// number without padding.
func EpochName(epoch uint64) string {
	return "e" + strconv.FormatUint(epoch, 10)
}

// ParseEpochName reads a segment that EpochName could have built.
func ParseEpochName(name string) (epoch uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, "e")
	if !ok {
		return 0, false
	}
	return parseDecimal(digits)
}

// parseDecimal reads a decimal number as celld prints them: digits only, no
// padding.
func parseDecimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return n, true
}
