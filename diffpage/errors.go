package diffpage

import (
	"cmp"
	"errors"
	"fmt"

	"celldexport/diffpage/btree"
)

// ErrCorrupt is wrapped by every error about pages that do not make up a
// database; a *CorruptError says which.
var ErrCorrupt = btree.ErrCorrupt

// ErrUnreadable is wrapped when the rows of a table are asked for whose
// columns are not known.
var ErrUnreadable = errors.New("unreadable table")

// ErrNoTable is wrapped when a table is asked for that neither side has, or
// that has no rows of its own (a view, a virtual table).
var ErrNoTable = errors.New("no such table")

// ErrStale is wrapped when an owner map does not belong to the shadow it is
// opened with, a change not to the state of its base, or when a change is
// used after it was accepted or closed.
var ErrStale = errors.New("stale state")

// CorruptError says where a database contradicts its own format, or a unit
// contradicts the state it is to be applied to. Nothing has been changed.
type CorruptError struct {
	// Table is the stored name, empty when no table is to blame.
	Table string
	// Page is the page number, 0 when no page is to blame.
	Page uint32
	// Err wraps ErrCorrupt.
	Err error
}

func (e *CorruptError) Error() string {
	switch {
	case e.Table != "" && e.Page != 0:
		return fmt.Sprintf("table %q, page %d: %v", e.Table, e.Page, e.Err)
	case e.Table != "":
		return fmt.Sprintf("table %q: %v", e.Table, e.Err)
	case e.Page != 0:
		return fmt.Sprintf("page %d: %v", e.Page, e.Err)
	}
	return e.Err.Error()
}

// Unwrap is Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// blame names table and page in an error about content, as far as it does not
// name them itself; other errors, such as failed reads, pass.
func blame(table string, pgno uint32, err error) error {
	if err == nil {
		return nil
	}
	var known *CorruptError
	switch {
	case !errors.Is(err, ErrCorrupt):
		return err
	case !errors.As(err, &known):
		return &CorruptError{Table: table, Page: pgno, Err: err}
	case known.Table == "" && table != "", known.Page == 0 && pgno != 0:
		return &CorruptError{Table: cmp.Or(known.Table, table), Page: cmp.Or(known.Page, pgno), Err: known.Err}
	}
	return err
}

// corrupt is a CorruptError with a reason.
func corrupt(table string, pgno uint32, format string, args ...any) error {
	return &CorruptError{Table: table, Page: pgno, Err: fmt.Errorf(format+": %w", append(args, ErrCorrupt)...)}
}
