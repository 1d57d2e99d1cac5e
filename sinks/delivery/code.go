package delivery

import (
	"slices"

	"celldexport/envelope"
)

// kinds and origins are numbered by their place here; 0 is none. The numbers
// are in files: only append.
var (
	kinds = [...]envelope.Kind{
		"", envelope.KindRows, envelope.KindSnapshot, envelope.KindSnapshotEnd, envelope.KindSchema,
		envelope.KindLink, envelope.KindRecovered, envelope.KindDeleted, envelope.KindWatermark,
		envelope.KindBulk, envelope.KindGap,
	}
	origins = [...]envelope.Origin{"", envelope.Live, envelope.Snapshot, envelope.Repair}
)

func kindCode(k envelope.Kind) byte { return byte(max(0, slices.Index(kinds[:], k))) }

func originCode(o envelope.Origin) byte { return byte(max(0, slices.Index(origins[:], o))) }
