//go:build cgo

package kafka

import (
	"fmt"
	"testing"
	"time"
)

func TestDeliversEverythingInOrder(t *testing.T) {
	c := newCluster(t)
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs()})
	for i := range 3000 {
		w.unit(i%7, int64(i%50), fmt.Sprintf("value %d", i))
		if i%100 == 0 {
			w.sync()
		}
	}
	w.sync()
	w.flush(30 * time.Second)
	list := consume(t, c.ListenAddrs())
	w.check(list)
	if resent := inOrder(t, list); resent != 0 {
		t.Errorf("%d messages were sent twice", resent)
	}
}
