package audit

import (
	"fmt"
	"regexp"
	"slices"

	"celldexport/envelope"
	"celldexport/internal/celld"
)

// hourForm is a day or an hour in keys of the bucket sink.
var hourForm = regexp.MustCompile(`^[0-9]{4}/(0[1-9]|1[0-2])/(0[1-9]|[12][0-9]|3[01])(/([01][0-9]|2[0-3]))?$`)

// nodeForm is a node's name as a part of a key.
var nodeForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// kinds lists every kind of record.
func kinds() []envelope.Kind {
	return []envelope.Kind{
		envelope.KindRows, envelope.KindSnapshot, envelope.KindSnapshotEnd, envelope.KindSchema, envelope.KindLink,
		envelope.KindRecovered, envelope.KindDeleted, envelope.KindWatermark, envelope.KindBulk, envelope.KindGap,
	}
}

func origins() []envelope.Origin {
	return []envelope.Origin{envelope.Live, envelope.Snapshot, envelope.Repair}
}

// picker is a filter that has been checked.
type picker struct {
	scope  celld.Scope
	kind   envelope.Kind
	origin envelope.Origin
}

// compile checks what is asked for. Its errors wrap ErrUsage.
func (q *Inspection) compile() (picker, error) {
	usage := func(format string, args ...any) (picker, error) {
		return picker{}, fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...)
	}
	switch {
	case len(q.Files) > 0 && (q.Node != "" || q.Hour != "" || q.After != ""):
		return usage("files are read whole: node, hour and after are for the bucket")
	case q.Hour != "" && q.Node == "":
		return usage("an hour needs a node")
	case q.Node != "" && !nodeForm.MatchString(q.Node):
		return usage("node %q: ASCII letters, digits, -, _ and ., not starting with a dot", q.Node)
	case q.Hour != "" && !hourForm.MatchString(q.Hour):
		return usage("hour %q: YYYY/MM/DD or YYYY/MM/DD/HH", q.Hour)
	case q.Objects < 1:
		return usage("objects %d: 1 or more", q.Objects)
	case q.Kind != "" && !slices.Contains(kinds(), envelope.Kind(q.Kind)):
		return usage("kind %q: one of %v", q.Kind, kinds())
	case q.Origin != "" && !slices.Contains(origins(), envelope.Origin(q.Origin)):
		return usage("origin %q: one of %v", q.Origin, origins())
	}
	p := picker{kind: envelope.Kind(q.Kind), origin: envelope.Origin(q.Origin)}
	if q.Cell != "" {
		scope, err := celld.ParseScope(q.Cell)
		if err != nil {
			return usage("cell %q: %w", q.Cell, err)
		}
		p.scope = scope
	}
	return p, nil
}

// picks reports whether a record passes. A cell picks its facets too.
func (p picker) picks(r *envelope.Encoded) bool {
	switch {
	case p.kind != "" && r.Kind != p.kind, p.origin != "" && r.Origin != p.origin:
		return false
	case p.scope.Cell != "" && r.Stream.Cell != p.scope.Cell:
		return false
	}
	return p.scope.Facet == "" || r.Stream.Facet == p.scope.Facet
}
