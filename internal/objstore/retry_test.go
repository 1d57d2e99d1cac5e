package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"celldexport/internal/objstore"
)

var errReset = errors.New("connection reset")

// toldError is an error with what a store may say along with it.
type toldError struct {
	after   time.Duration
	refused bool
}

func (e toldError) Error() string             { return "slow down" }
func (e toldError) RetryAfter() time.Duration { return e.after }
func (e toldError) NotApplied() bool          { return e.refused }

// waits is a policy that notes how long it would sleep.
func waits(slept *[]time.Duration) objstore.RetryPolicy {
	return objstore.RetryPolicy{
		Attempts: 5, Base: 100 * time.Millisecond, Cap: 400 * time.Millisecond,
		Rand:  func() float64 { return 0.5 },
		Sleep: func(_ context.Context, d time.Duration) error { *slept = append(*slept, d); return nil },
	}
}

func ms(n ...int) []time.Duration {
	var d []time.Duration
	for _, n := range n {
		d = append(d, time.Duration(n)*time.Millisecond)
	}
	return d
}

// calls runs every operation on the object "k", which holds "v".
func calls(ctx context.Context, s objstore.Store) map[string]func() error {
	return map[string]func() error{
		objstore.OpGet: func() error { _, _, err := objstore.ReadAll(ctx, s, "k", 10); return err },
		objstore.OpPut: func() error {
			_, err := objstore.PutBytes(ctx, s, "k", []byte("v"), objstore.PutOptions{})
			return err
		},
		objstore.OpDelete: func() error { return s.Delete(ctx, "other") },
		objstore.OpList: func() error {
			for _, err := range s.List(ctx, "", "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// faulty is a store that holds "k" = "v", its faults, and retries over them.
func faulty(t *testing.T, p objstore.RetryPolicy) (*objstore.Fault, objstore.Store) {
	t.Helper()
	fault := objstore.NewFault(objstore.NewMemory())
	if _, err := objstore.PutBytes(t.Context(), fault, "k", []byte("v"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	return fault, objstore.WithRetry(fault, p)
}

func TestRetryPassesWhatPasses(t *testing.T) {
	for _, op := range []string{objstore.OpGet, objstore.OpPut, objstore.OpDelete, objstore.OpList} {
		for name, rule := range map[string]objstore.Rule{
			"before": {Op: op, Times: 3, Before: errReset},
			"after":  {Op: op, Times: 3, After: errReset},
		} {
			var slept []time.Duration
			fault, s := faulty(t, waits(&slept))
			fault.Add(rule)
			if err := calls(t.Context(), s)[op](); err != nil {
				t.Errorf("%s, failing %s: %v", op, name, err)
			}
			if want := ms(75, 150, 300); !slices.Equal(slept, want) {
				t.Errorf("%s, failing %s: waited %v, want %v", op, name, slept, want)
			}
		}
	}
}

func TestRetryGivesUp(t *testing.T) {
	for _, op := range []string{objstore.OpGet, objstore.OpPut, objstore.OpDelete, objstore.OpList} {
		var slept []time.Duration
		fault, s := faulty(t, waits(&slept))
		fault.Add(objstore.Rule{Op: op, Before: errReset})
		err := calls(t.Context(), s)[op]()
		if !errors.Is(err, errReset) || !strings.Contains(err.Error(), "after 5 attempts") {
			t.Errorf("%s: error is %v", op, err)
		}
		if want := ms(75, 150, 300, 300); !slices.Equal(slept, want) {
			t.Errorf("%s: waited %v, want %v", op, slept, want)
		}
	}
}

// A store that lets calls run out of time takes as long for each as one that
// refuses takes for all: it is asked twice.
func TestRetryOfSilence(t *testing.T) {
	for _, op := range []string{objstore.OpGet, objstore.OpPut, objstore.OpDelete, objstore.OpList} {
		var slept []time.Duration
		fault, s := faulty(t, waits(&slept))
		fault.Add(objstore.Rule{Op: op, Before: fmt.Errorf("read: %w", os.ErrDeadlineExceeded)})
		err := calls(t.Context(), s)[op]()
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "after 2 attempts") {
			t.Errorf("%s: error is %v", op, err)
		}
		if want := ms(75); !slices.Equal(slept, want) {
			t.Errorf("%s: waited %v, want %v", op, slept, want)
		}
		fault.Clear()
		fault.Add(objstore.Rule{Op: op, Times: 1, Before: os.ErrDeadlineExceeded})
		if err := calls(t.Context(), s)[op](); err != nil {
			t.Errorf("%s, silent once: %v", op, err)
		}
	}
}

func TestRetryLeavesPermanentErrors(t *testing.T) {
	for _, permanent := range []error{objstore.ErrNotFound, objstore.ErrDenied, objstore.ErrPrecondition, objstore.ErrKey, objstore.ErrBody, objstore.ErrTooLarge, errors.ErrUnsupported, context.Canceled} {
		for _, op := range []string{objstore.OpGet, objstore.OpPut, objstore.OpDelete, objstore.OpList} {
			var slept []time.Duration
			fault, s := faulty(t, waits(&slept))
			fault.Add(objstore.Rule{Op: op, Before: fmt.Errorf("wrapped: %w", permanent)})
			if err := calls(t.Context(), s)[op](); !errors.Is(err, permanent) || len(slept) > 0 {
				t.Errorf("%s: %v after waiting %v", op, err, slept)
			}
		}
	}
}

func TestRetryOfConditionalPuts(t *testing.T) {
	for _, test := range []struct {
		name  string
		rule  objstore.Rule
		calls int
		want  error
	}{
		{"answer lost", objstore.Rule{After: errReset, Times: 1}, 1, errReset},
		{"request lost", objstore.Rule{Before: errReset, Times: 1}, 1, errReset},
		{"refused at the door", objstore.Rule{Before: toldError{refused: true}, Times: 2}, 3, nil},
		{"refused for long", objstore.Rule{Before: toldError{refused: true}}, 5, toldError{refused: true}},
		{"perhaps refused", objstore.Rule{Before: toldError{}, Times: 1}, 1, toldError{}},
	} {
		for _, opts := range []objstore.PutOptions{{IfAbsent: true}, {IfMatch: "etag"}} {
			var slept []time.Duration
			fault, s := faulty(t, waits(&slept))
			before := fault.Calls(objstore.OpPut)
			test.rule.Op = objstore.OpPut
			fault.Add(test.rule)
			key := "new"
			if opts.IfMatch != "" {
				_, obj, err := objstore.ReadAll(t.Context(), s, "k", 10)
				if err != nil {
					t.Fatal(err)
				}
				key, opts.IfMatch = "k", obj.ETag
			}
			_, err := objstore.PutBytes(t.Context(), s, key, []byte("w"), opts)
			if n := fault.Calls(objstore.OpPut) - before; !errors.Is(err, test.want) || n != test.calls {
				t.Errorf("%s, %+v: %d calls and %v, want %d and %v", test.name, opts, n, err, test.calls, test.want)
			}
		}
	}
}

func TestRetryObeysTheStore(t *testing.T) {
	var slept []time.Duration
	fault, s := faulty(t, waits(&slept))
	for i, after := range ms(10, 350, 5000) {
		fault.Add(objstore.Rule{Op: objstore.OpDelete, Skip: i, Times: 1, Before: toldError{after: after}})
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	// Longer than its own wait where asked, never beyond the cap.
	if want := ms(75, 350, 400); !slices.Equal(slept, want) {
		t.Errorf("waited %v, want %v", slept, want)
	}
}

func TestRetrySleepsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault, s := faulty(t, objstore.RetryPolicy{})
		fault.Add(objstore.Rule{Op: objstore.OpDelete, Before: errReset})
		start := time.Now()
		if err := s.Delete(t.Context(), "k"); !errors.Is(err, errReset) {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(start); took < 10*time.Second || took > time.Minute {
			t.Errorf("the default policy gave up after %v", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start = time.Now()
		if err := s.Delete(ctx, "k"); !errors.Is(err, errReset) {
			t.Errorf("at the end of its context a call must say why it waited: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("a sleep outlasted its context: %v", took)
		}
	})
}

func TestRetryTellsItsObserver(t *testing.T) {
	var slept []time.Duration
	var told []string
	p := waits(&slept)
	p.Observe = func(op string, err error, wait time.Duration) {
		told = append(told, fmt.Sprint(op, " ", err, " ", wait))
	}
	fault, s := faulty(t, p)
	fault.Add(objstore.Rule{Op: objstore.OpDelete, Times: 1, Before: errReset})
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"delete connection reset 75ms"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestRetryResumesBodies breaks a body several times at several places.
func TestRetryResumesBodies(t *testing.T) {
	const whole = "0123456789abcdefghij"
	for _, opts := range []objstore.GetOptions{{}, {Offset: 3}, {Offset: 2, Length: 9}, {Offset: -12}, {Offset: -12, Length: 8}} {
		for _, broken := range []error{errReset, io.ErrUnexpectedEOF, io.EOF} {
			var slept []time.Duration
			fault, s := faulty(t, waits(&slept))
			if _, err := objstore.PutBytes(t.Context(), fault, "body", []byte(whole), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			plain, _, err := fault.Get(t.Context(), "body", opts)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := io.ReadAll(plain)
			fault.Add(objstore.Rule{Op: objstore.OpGet, Times: 1, CutAt: 0, CutError: broken})
			fault.Add(objstore.Rule{Op: objstore.OpGet, Skip: 1, Times: 2, CutAt: 3, CutError: broken})
			body, obj, err := s.Get(t.Context(), "body", opts)
			if err != nil || obj.Size != int64(len(whole)) {
				t.Fatalf("%+v: %+v, %v", opts, obj, err)
			}
			got, err := io.ReadAll(body)
			if err != nil || string(got) != string(want) {
				t.Errorf("%+v broken by %v: read %q (%v), want %q", opts, broken, got, err, want)
			}
			if want := ms(75, 75, 75); !slices.Equal(slept, want) {
				t.Errorf("%+v: waited %v, want %v: attempts count anew after bytes that arrived", opts, slept, want)
			}
			body.Close()
		}
	}
}

func TestRetryNeverMixesVersions(t *testing.T) {
	var slept []time.Duration
	fault, s := faulty(t, waits(&slept))
	put := func(body string) {
		if _, err := objstore.PutBytes(t.Context(), fault, "body", []byte(body), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put("first version")
	fault.Add(objstore.Rule{Op: objstore.OpGet, Times: 1, CutAt: 5, CutError: errReset})
	body, _, err := s.Get(t.Context(), "body", objstore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	put("other version")
	got, err := io.ReadAll(body)
	if string(got) != "first" || !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("read %q and %v", got, err)
	}
	if n, again := body.Read(make([]byte, 4)); n != 0 || !errors.Is(again, objstore.ErrPrecondition) {
		t.Errorf("reading on gave %d bytes and %v", n, again)
	}
}

func TestRetryGivesUpOnBodies(t *testing.T) {
	var slept []time.Duration
	fault, s := faulty(t, waits(&slept))
	fault.Add(objstore.Rule{Op: objstore.OpGet, CutAt: 0, CutError: errReset})
	_, _, err := objstore.ReadAll(t.Context(), s, "k", 10)
	if !errors.Is(err, errReset) || len(slept) != 4 {
		t.Errorf("error is %v after %d waits", err, len(slept))
	}
}

// TestRetryResumesLists lets a listing break after every second object.
func TestRetryResumesLists(t *testing.T) {
	var slept []time.Duration
	memory := objstore.NewMemory()
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprintf("l/%d", i))
		if _, err := objstore.PutBytes(t.Context(), memory, want[i], nil, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := objstore.WithRetry(&brittleLists{Store: memory}, waits(&slept))
	for range 2 { // the sequence starts anew each time
		var got []string
		for obj, err := range s.List(t.Context(), "l/", "l/0") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj.Key)
		}
		if !slices.Equal(got, want[1:]) {
			t.Errorf("listed %q, want %q", got, want[1:])
		}
	}
	if len(slept) == 0 {
		t.Error("no listing broke")
	}
}
