package objstore

import (
	"context"
	"errors"
	"fmt"
)

// ProbeConditional checks that the store honours conditional writes, on which
// ledgers rest, by writing and deleting an object under key, which nobody else
// must use. A store that ignores a condition gives errors.ErrUnsupported.
func ProbeConditional(ctx context.Context, s Store, key string) (err error) {
	if err := s.Delete(ctx, key); err != nil { // an earlier probe may have died here
		return err
	}
	first, err := PutBytes(ctx, s, key, []byte("1"), PutOptions{IfAbsent: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	if _, err = PutBytes(ctx, s, key, []byte("2"), PutOptions{IfMatch: first.ETag}); err != nil {
		return err
	}
	for _, opts := range []PutOptions{{IfAbsent: true}, {IfMatch: first.ETag}} {
		switch _, err := PutBytes(ctx, s, key, []byte("3"), opts); {
		case err == nil:
			return fmt.Errorf("probe %s: the store ignores conditions on writes (if-none-match %t): %w", key, opts.IfAbsent, errors.ErrUnsupported)
		case !errors.Is(err, ErrPrecondition):
			return err
		}
	}
	return nil
}
