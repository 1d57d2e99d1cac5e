package objstore_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// TestS304Clock lets a store refuse requests because of their time: the error
// names the clocks and what the store's shows, nothing is given up, and every
// attempt is signed anew with its own time, also one that was held for long.
func TestS304Clock(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	var mu sync.Mutex
	var dates, signatures []string
	left, hold := 2, 0
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		dates = append(dates, r.Header.Get("X-Amz-Date"))
		_, signature, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
		signatures = append(signatures, signature)
		if hold > 0 {
			hold--
			time.Sleep(1100 * time.Millisecond)
		}
		if left == 0 {
			return false
		}
		left--
		w.Header().Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
		answer(w, http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
		return true
	})
	var told []string
	s := objstore.WithRetry(server.open(t), objstore.RetryPolicy{
		Attempts: 5, Base: time.Millisecond, Cap: time.Millisecond,
		Sleep: func(context.Context, time.Duration) error {
			if len(told) < 3 {
				time.Sleep(1100 * time.Millisecond) // the clock of signatures counts seconds
			}
			return nil
		},
		Observe: func(_ string, err error, _ time.Duration) { told = append(told, err.Error()) },
	})
	put := func(key string) {
		t.Helper()
		if _, err := objstore.PutBytes(t.Context(), s, key, []byte("v"), objstore.PutOptions{}); err != nil {
			t.Errorf("put %s: %v", key, err)
		}
		if got, _, err := objstore.ReadAll(t.Context(), s, key, 10); err != nil || string(got) != "v" {
			t.Errorf("%s holds %q (%v)", key, got, err)
		}
	}
	put("skewed")
	if len(told) != 2 || !strings.Contains(told[0], "clocks of this machine and of the store differ") {
		t.Errorf("the failed attempts say %q", told)
	}
	mu.Lock()
	if len(dates) < 3 || dates[0] == dates[1] || dates[1] == dates[2] || signatures[0] == signatures[1] {
		t.Errorf("attempts at %q with signatures %q: not signed anew", dates, signatures)
	}
	dates, signatures, left, hold = nil, nil, 1, 1
	mu.Unlock()
	put("held")
	if len(dates) < 2 || dates[0] == dates[1] {
		t.Errorf("attempts at %q: a request that was held too long is repeated with its old time", dates)
	}
	// A proxy that rewrites Accept-Encoding breaks signatures that cover it.
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if _, signed, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders="); strings.Contains(signed, "accept-encoding") {
			answer(w, http.StatusForbidden, "SignatureDoesNotMatch", "computed over another accept-encoding")
			return true
		}
		r.Header.Set("Accept-Encoding", "gzip, rewritten on the way")
		return false
	})
	put("proxied")
}
