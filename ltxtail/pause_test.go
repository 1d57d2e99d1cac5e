package ltxtail

import (
	"testing"
	"time"
)

func TestWalksTakeASmallShareOfTheTime(t *testing.T) {
	const every, poll = 10 * time.Second, 500 * time.Millisecond
	for _, c := range []struct {
		every, took time.Duration
		polling     bool
		want        time.Duration
	}{
		{every, time.Millisecond, false, every},
		{every, 200 * time.Millisecond, false, 29800 * time.Millisecond},
		{every, time.Hour, false, time.Minute},
		{every, -time.Hour, false, every}, // the clock was set back
		{poll, time.Millisecond, true, poll},
		{poll, 200 * time.Millisecond, true, 800 * time.Millisecond},
	} {
		if got := pause(c.every, c.took, c.polling); got != c.want {
			t.Errorf("every %v, a walk of %v, polling %v: next after %v, want %v", c.every, c.took, c.polling, got, c.want)
		}
	}
}
