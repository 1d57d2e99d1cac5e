package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"celldexport/internal/objstore"
)

// racers is how many goroutines compete for a key.
const racers = 16

func ifAbsent(t *testing.T, s objstore.Store) {
	put(t, s, "k", "first", objstore.PutOptions{IfAbsent: true})
	_, err := objstore.PutBytes(t.Context(), s, "k", []byte("second"), objstore.PutOptions{IfAbsent: true})
	wantError(t, "second creation", err, objstore.ErrPrecondition)
	_, err = objstore.PutBytes(t.Context(), s, "k", []byte("first"), objstore.PutOptions{IfAbsent: true})
	wantError(t, "second creation with the same content", err, objstore.ErrPrecondition)
	wantBody(t, s, "k", "first")
	_, err = objstore.PutBytes(t.Context(), s, "k", nil, objstore.PutOptions{IfAbsent: true, IfMatch: "e"})
	wantError(t, "contradictory conditions", err, objstore.ErrKey)
}

// createBelow creates an object below and above others.
func createBelow(t *testing.T, s objstore.Store) {
	put(t, s, "k", "x", objstore.PutOptions{IfAbsent: true})
	put(t, s, "k/below/it", "x", objstore.PutOptions{IfAbsent: true})
	put(t, s, "k/below", "x", objstore.PutOptions{IfAbsent: true})
	for _, key := range []string{"k", "k/below", "k/below/it"} {
		_, err := objstore.PutBytes(t.Context(), s, key, []byte("y"), objstore.PutOptions{IfAbsent: true})
		wantError(t, "second creation of "+key, err, objstore.ErrPrecondition)
	}
}

func ifMatch(t *testing.T, s objstore.Store) {
	_, err := objstore.PutBytes(t.Context(), s, "k", []byte("x"), objstore.PutOptions{IfMatch: "0123456789abcdef0123456789abcdef"})
	wantError(t, "replacing an absent object", err, objstore.ErrPrecondition)
	one := put(t, s, "k", "1", objstore.PutOptions{})
	two := put(t, s, "k", "2", objstore.PutOptions{IfMatch: one.ETag})
	_, err = objstore.PutBytes(t.Context(), s, "k", []byte("3"), objstore.PutOptions{IfMatch: one.ETag})
	wantError(t, "replacing a version that is gone", err, objstore.ErrPrecondition)
	wantBody(t, s, "k", "2")

	// The ETag that a read or a listing shows serves as well.
	read := wantBody(t, s, "k", "2")
	if read.ETag != two.ETag {
		t.Errorf("put gave ETag %q, get %q", two.ETag, read.ETag)
	}
	for obj, err := range s.List(t.Context(), "k", "") {
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "k", "3", objstore.PutOptions{IfMatch: obj.ETag})
	}
	wantBody(t, s, "k", "3")
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	_, err = objstore.PutBytes(t.Context(), s, "k", []byte("4"), objstore.PutOptions{IfMatch: two.ETag})
	wantError(t, "replacing a deleted object", err, objstore.ErrPrecondition)
}

func raceToCreate(t *testing.T, s objstore.Store) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		var won atomic.Int32
		winner := make([]string, racers)
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				body := fmt.Sprintf("racer %d", i)
				switch _, err := objstore.PutBytes(t.Context(), s, key, []byte(body), objstore.PutOptions{IfAbsent: true}); {
				case err == nil:
					winner[won.Add(1)-1] = body
				case !errors.Is(err, objstore.ErrPrecondition):
					t.Errorf("racer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d racers created %s", won.Load(), key)
		}
		wantBody(t, s, key, winner[0])
	}
}

// raceToIncrement counts in an object: an increment lost or done twice shows
// in the sum.
func raceToIncrement(t *testing.T, s objstore.Store) {
	put(t, s, "n", "0", objstore.PutOptions{})
	const each = 4
	var wg sync.WaitGroup
	for range racers {
		wg.Go(func() {
			for done := 0; done < each; {
				data, obj, err := objstore.ReadAll(t.Context(), s, "n", 100)
				if err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(string(data))
				if err != nil {
					t.Error(err)
					return
				}
				next := strconv.AppendInt(nil, int64(n+1), 10)
				switch _, err := objstore.PutBytes(t.Context(), s, "n", next, objstore.PutOptions{IfMatch: obj.ETag}); {
				case err == nil:
					done++
				case !errors.Is(err, objstore.ErrPrecondition):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantBody(t, s, "n", strconv.Itoa(racers*each))
}

// wholeObjects reads and lists while objects are replaced and deleted.
func wholeObjects(t *testing.T, s objstore.Store) {
	size := func(c byte) int { return 1000 * (int(c-'a') + 1) }
	body := func(c byte) string { return strings.Repeat(string(c), size(c)) }
	put(t, s, "w/steady", "always there", objstore.PutOptions{})
	put(t, s, "w/moving", body('a'), objstore.PutOptions{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for i := range 60 {
			put(t, s, "w/moving", body('a'+byte(i%7)), objstore.PutOptions{})
			put(t, s, "w/passing", "x", objstore.PutOptions{})
			if err := s.Delete(t.Context(), "w/passing"); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			data, _, err := objstore.ReadAll(t.Context(), s, "w/moving", 1<<20)
			if err != nil {
				t.Error(err)
			} else if len(data) != size(data[0]) || strings.Trim(string(data), string(data[0])) != "" {
				t.Errorf("read a mixture of %d bytes", len(data))
			}
			keys, err := collect(t.Context(), s, "w/", "")
			if err != nil || len(keys) < 2 || keys[0] != "w/moving" || keys[len(keys)-1] != "w/steady" {
				t.Errorf("listing shows %q (%v)", keys, err)
			}
		}
	})
	wg.Wait()
}
