//go:build !cgo

package kafka

import "context"

// Check returns [ErrNotBuilt].
func Check(context.Context, Config) (Topic, error) { return Topic{}, ErrNotBuilt }
