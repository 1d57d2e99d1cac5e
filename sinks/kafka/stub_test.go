//go:build !cgo

package kafka

import (
	"errors"
	"strings"
	"testing"
)

func TestRefusedWithoutCgo(t *testing.T) {
	s, err := New(Config{Brokers: []string{"k:9092"}, Topic: "t"})
	if s != nil || !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "CGO_ENABLED=1") {
		t.Errorf("got %v, %v", s, err)
	}
}
