package delivery

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A clock that is set back by an hour does not put off the watermark of a
// stretch without records by more than the usual minute.
func TestWatermarkAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Int64
		now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		sink := &fakeSink{name: "bucket"}
		r := start(t, t.TempDir(), Config{Now: now}, sink)
		linkOf(t, r.spool, 1)
		unitOf(t, r.spool, unit(1, 1), 1)
		time.Sleep(time.Second)
		wantCertified(t, sink, 1, 1)
		unitOf(t, r.spool, unit(1, 2), 0)
		time.Sleep(time.Second)
		wantCertified(t, sink, 1, 1)
		back.Store(int64(time.Hour))
		time.Sleep(2 * time.Minute)
		wantCertified(t, sink, 1, 2)
		r.stop()
	})
}
