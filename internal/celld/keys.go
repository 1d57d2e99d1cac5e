package celld

import (
	"fmt"
	"strconv"
	"strings"

	"celldexport/internal/ltxfile"
)

// Keys of the fleet bucket, relative to its prefix.
const (
	// CellsPrefix is in front of everything that belongs to cells.
	CellsPrefix = "cells/"
	// ControlKey says where the fleet keeps ownership when that is not the
	// bucket.
	ControlKey = "fleet/control.json"
	// DeployPrefix is in front of the pointers to deployments.
	DeployPrefix = "deploy/"
)

// SnapshotLevel is the level of the full images written at a handoff.
const SnapshotLevel = 9

const (
	ltxSegment        = "/ltx/"
	ltxSuffix         = ".ltx"
	currentDeployment = "current.json"
)

// OwnKey is the key of the document that says which node owns a root cell.
// Facets have none: they are owned with their root.
func OwnKey(cell string) string { return CellsPrefix + cell + "/own.json" }

// RetiredKey is the key of the document that says which epochs of a scope
// have been or are being deleted.
func RetiredKey(scope string) string { return LTXPrefix(scope) + "retired.json" }

// LTXPrefix is in front of all LTX objects of a scope, and of none of the
// facets below it.
func LTXPrefix(scope string) string { return CellsPrefix + scope + ltxSegment }

// LTXEpochPrefix is in front of the LTX objects of one epoch.
func LTXEpochPrefix(scope string, epoch uint64) string {
	return LTXPrefix(scope) + EpochName(epoch) + "/"
}

// LTXLevelPrefix is in front of the LTX objects of one level of an epoch.
func LTXLevelPrefix(scope string, epoch uint64, level int) string {
	return LTXEpochPrefix(scope, epoch) + fmt.Sprintf("%04x/", level)
}

// LTXKey is the key of one LTX object.
func LTXKey(scope string, epoch uint64, level int, minTXID, maxTXID uint64) string {
	return LTXLevelPrefix(scope, epoch, level) + ltxfile.FileName(minTXID, maxTXID)
}

// LTXName is what the key of an LTX object says.
type LTXName struct {
	Scope    Scope
	Epoch    uint64
	Level    int
	Min, Max uint64
}

// ParseLTXKey reads the key of an LTX object. ok is false without an error
// for keys that are something else: outside cells/, or not below ".../ltx/e",
// or not ending in ".ltx". A key that claims to be an LTX object and is not
// spelled as celld spells it is an error that wraps ErrName, since leaving it
// out would silently shorten what a cell restores to.
//
// The last "/ltx/e<epoch>/<level>/<file>" of the key counts and what precedes
// it must be a legal scope. A legal scope has no slash but those of its
// facets, so the first such place in a key is then also the last.
func ParseLTXKey(key string) (name LTXName, ok bool, err error) {
	rest, isCell := strings.CutPrefix(key, CellsPrefix)
	if !isCell || !strings.HasSuffix(rest, ltxSuffix) || !strings.Contains(rest, ltxSegment+"e") {
		return LTXName{}, false, nil
	}
	at := strings.LastIndex(rest, ltxSegment+"e")
	parts := strings.Split(rest[at+len(ltxSegment):], "/")
	if len(parts) != 3 {
		return LTXName{}, false, fmt.Errorf("key %.600q is no <epoch>/<level>/<file> below ltx/: %w", key, ErrName)
	}
	if name.Scope, err = ParseScope(rest[:at]); err != nil {
		return LTXName{}, false, fmt.Errorf("key %.600q: %w", key, err)
	}
	if name.Epoch, ok = ParseEpochName(parts[0]); !ok {
		return LTXName{}, false, fmt.Errorf("key %.600q has a malformed epoch: %w", key, ErrName)
	}
	if name.Level, ok = parseLevel(parts[1]); !ok {
		return LTXName{}, false, fmt.Errorf("key %.600q has a malformed level: %w", key, ErrName)
	}
	if name.Min, name.Max, ok = ltxfile.ParseFileName(parts[2]); !ok {
		return LTXName{}, false, fmt.Errorf("key %.600q has a malformed file name: %w", key, ErrName)
	}
	return name, true, nil
}

// parseLevel reads exactly four hex digits, 0 to SnapshotLevel.
func parseLevel(s string) (int, bool) {
	if len(s) != 4 || !isLowerHex(s) {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 16, 16)
	if err != nil || n > SnapshotLevel {
		return 0, false
	}
	return int(n), true
}

// DeploymentKey is the key of the pointer to a script's current deployment;
// the empty script stands for the fleet's main one.
func DeploymentKey(script string) string {
	if script == "" {
		return DeployPrefix + currentDeployment
	}
	return DeployPrefix + script + "/" + currentDeployment
}

// ParseDeploymentKey reads a key that DeploymentKey could have built. Other
// objects live below deploy/ as well; for them ok is false.
func ParseDeploymentKey(key string) (script string, ok bool) {
	rest, ok := strings.CutPrefix(key, DeployPrefix)
	if !ok {
		return "", false
	}
	if rest == currentDeployment {
		return "", true
	}
	script, file, ok := strings.Cut(rest, "/")
	if !ok || script == "" || file != currentDeployment {
		return "", false
	}
	return script, true
}

// ManifestKey is the key of the manifest of a deployment whose pointer names
// the prefix.
func ManifestKey(prefix string) string {
	return strings.TrimSuffix(prefix, "/") + "/manifest.json"
}

// EscapeName spells a name so that it is one segment of a key: ASCII letters,
// digits and "_.:$" stay, every other byte becomes % and two upper-case hex
// digits. Distinct names stay distinct.
func EscapeName(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isAlphanumeric(c) || strings.IndexByte("_.:$", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
