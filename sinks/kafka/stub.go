//go:build !cgo

package kafka

import (
	"context"
	"errors"

	"celldexport/sinks"
)

// ErrNotBuilt says that this program was built without cgo.
var ErrNotBuilt = errors.New("the kafka sink is not in this build: it needs librdkafka, so build with CGO_ENABLED=1 and a C compiler")

// Sink is the Kafka sink, which this build does not contain.
type Sink struct{}

var _ sinks.Sink = (*Sink)(nil)

// New returns [ErrNotBuilt].
func New(Config) (*Sink, error) { return nil, ErrNotBuilt }

// Judge returns [ErrNotBuilt].
func Judge(Config) error { return ErrNotBuilt }

// Name is "kafka".
func (*Sink) Name() string { return SinkName }

// Run returns [ErrNotBuilt].
func (*Sink) Run(context.Context, sinks.Queue) error { return ErrNotBuilt }
