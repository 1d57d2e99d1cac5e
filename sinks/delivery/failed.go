package delivery

import (
	"errors"
	"syscall"

	"modernc.org/sqlite"
)

// ofDisk reports whether an error is one of the disk below the spool and
// delivery.db, or of what it gave back. A want of file descriptors is none.
func ofDisk(err error) bool {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno != syscall.EMFILE && errno != syscall.ENFILE
	}
	var db *sqlite.Error
	return errors.As(err, &db) || errors.Is(err, ErrCorrupt)
}
