package bucket

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/internal/objstore"
)

// TestFaultyPlaces runs the sink over places that throttle, lose answers, and
// list late, with a clock that jumps: every object is stored once, names grow,
// and everything is certified.
func TestFaultyPlaces(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				mem := objstore.NewMemory()
				store := objstore.NewFault(mem)
				dir := filepath.Join(t.TempDir(), "state")
				skew := time.Duration(0)
				cfg := Config{
					Store: store, FlushInterval: time.Second, FlushBytes: 4 << 10, QueueBytes: 64 << 10, RetryMin: 10 * time.Millisecond, RetryMax: time.Second,
					Now: func() time.Time { return time.Now().Add(skew) },
				}
				r := start(t, dir, cfg)
				for txid := range uint64(60) {
					r.unit(t, 1, txid+1, bigText(1+rng.IntN(3000)))
					switch rng.IntN(8) {
					case 0: // 503 for a while
						store.Add(objstore.Rule{Op: objstore.OpPut, Times: 1 + rng.IntN(20), Before: errors.New("503 slow down")})
					case 1: // stored, and the answer lost
						store.Add(objstore.Rule{Op: objstore.OpPut, Times: 1 + rng.IntN(3), After: errors.New("connection reset")})
					case 2: // listings lag
						store.Add(objstore.Rule{Op: objstore.OpList, Times: 2, Hide: func(objstore.Object) bool { return rng.IntN(2) == 0 }})
					case 3:
						r.flush(t)
					case 4:
						r.stop()
						skew = time.Duration(rng.IntN(7200)-3600) * time.Second
						r = start(t, dir, cfg)
					default:
						time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					}
				}
				store.Clear()
				r.flush(t)
				got := objects(t, mem)
				wantCertified(t, got, 1, 60)
				wantPlaces(t, r, got, 1)
				seen := map[string]string{}
				for _, o := range got {
					for _, line := range o.lines {
						if key, twice := seen[line]; twice {
							t.Errorf("a record is in %s and in %s", key, o.name.Key())
						}
						seen[line] = o.name.Key()
					}
				}
				r.stop()
			})
		})
	}
}
