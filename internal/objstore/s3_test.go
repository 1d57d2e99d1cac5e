package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"celldexport/internal/objstore"
)

// TestS301SendsNothingUnusual stores and reads objects of all sizes at a server
// that refuses whatever goes beyond the plain protocol.
func TestS301SendsNothingUnusual(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"http": (*httptest.Server).Start, "tls": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			server := newS3Server(t, start)
			server.setFront(refuseExtras)
			s := server.open(t)
			sizes := []int{0, 10 << 10, 6 << 20}
			if !testing.Short() {
				sizes = append(sizes, 70<<20)
			}
			for _, parts := range []bool{false, true} {
				if parts {
					objstore.SetPartSizes(s, 5<<20, 5<<20)
				}
				for _, size := range sizes {
					data := make([]byte, size)
					_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
					put, err := objstore.PutBytes(t.Context(), s, "k", data, objstore.PutOptions{})
					if err != nil {
						t.Fatalf("%d bytes, in parts: %t: %v", size, parts, err)
					}
					got, obj, err := objstore.ReadAll(t.Context(), s, "k", 1<<30)
					// The fake store forgets the ETag that it gave to parts.
					if err != nil || !bytes.Equal(got, data) || !parts && obj.ETag != put.ETag {
						t.Errorf("%d bytes, in parts: %t: read %d (%v), put %+v, got %+v", size, parts, len(got), err, put, obj)
					}
				}
			}
		})
	}
}

// TestS301BodiesAreSigned holds that the store can check what arrives.
func TestS301BodiesAreSigned(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	var sum atomic.Value
	server.setFront(func(_ http.ResponseWriter, r *http.Request) bool {
		sum.Store(r.Header.Get("X-Amz-Content-Sha256"))
		return false
	})
	if _, err := objstore.PutBytes(t.Context(), server.open(t), "k", []byte("abc"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; sum.Load() != want {
		t.Errorf("the request carries %v, want %s", sum.Load(), want)
	}
}

// TestS302RegionAndPath holds that no request is made to find a region, that
// requests are signed for the one that was set, and that the bucket is in the
// path.
func TestS302RegionAndPath(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).StartTLS)
	ca := server.caFile(t)
	host := strings.TrimPrefix(server.URL, "https://")
	for _, test := range []struct{ endpoint, bucket, region, want string }{
		{server.URL, "bucket", "eu-central-1", "eu-central-1"},
		{server.URL, "bucket", "auto", "auto"},
		{server.URL, "bucket", "", "auto"},
		{server.URL + "/", "bucket", "", "auto"},
		{host, "bucket", "", "auto"},
		{host + "/", "bucket/pre/fix", "", "auto"},
		{server.URL, "dotted.bucket.name", "", "auto"},
	} {
		server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
			switch name, _, _ := strings.Cut(test.bucket, "/"); {
			case r.URL.Query().Has("location"), r.Method == http.MethodHead:
				answer(w, http.StatusForbidden, "AccessDenied", "no")
			case !strings.Contains(r.Header.Get("Authorization"), "/"+test.want+"/s3/aws4_request"):
				answer(w, http.StatusBadRequest, "AuthorizationHeaderMalformed", "region")
			case !strings.HasPrefix(r.URL.Path, "/"+name+"/"):
				answer(w, http.StatusBadRequest, "InvalidRequest", "path")
			case strings.Contains(r.Header.Get("Authorization"), "accept-encoding"):
				answer(w, http.StatusForbidden, "SignatureDoesNotMatch", "accept-encoding is signed")
			default:
				r.URL.Path = strings.Replace(r.URL.Path, name, "bucket", 1)
				return false
			}
			return true
		})
		s := openS3(t, objstore.Config{URL: "s3://" + test.bucket, Endpoint: test.endpoint, Region: test.region, CAFile: ca})
		server.requests()
		for op, call := range calls(t.Context(), s) {
			if op == objstore.OpGet {
				continue // "k" may not be there yet
			}
			if err := call(); err != nil {
				t.Errorf("%+v: %s: %v", test, op, err)
			}
		}
		if seen := server.requests(); len(seen) != 3 {
			t.Errorf("%+v: three operations made the requests %q", test, seen)
		}
	}
}

func TestS303Throttled(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	for _, test := range []struct {
		status     int
		code       string
		retryAfter string
		want       time.Duration
		notApplied bool
	}{
		{503, "SlowDown", "", 0, true},
		{503, "SlowDown", "7", 7 * time.Second, true},
		{429, "TooManyRequests", "2", 2 * time.Second, true},
		{429, "", "", 0, true},
		{503, "ServiceUnavailable", "Mon, 30 Nov 2026 03:00:09 GMT", 9 * time.Second, false},
		{500, "InternalError", "-5", 0, false},
		{503, "SlowDown", "soon", 0, true},
		{409, "ConditionalRequestConflict", "", 0, true},
	} {
		server.setFront(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Date", "Mon, 30 Nov 2026 03:00:00 GMT")
			if test.retryAfter != "" {
				w.Header().Set("Retry-After", test.retryAfter)
			}
			answer(w, test.status, test.code, "please wait")
			return true
		})
		_, err := objstore.PutBytes(t.Context(), server.open(t), "k", []byte("x"), objstore.PutOptions{IfAbsent: true})
		if err == nil || objstore.Permanent(err) {
			t.Errorf("%+v: error is %v", test, err)
			continue
		}
		var after interface{ RetryAfter() time.Duration }
		var applied interface{ NotApplied() bool }
		if !errors.As(err, &after) || after.RetryAfter() != test.want || !errors.As(err, &applied) || applied.NotApplied() != test.notApplied {
			t.Errorf("%+v: %v asks for %v, not applied: %t", test, err, after.RetryAfter(), applied.NotApplied())
		}
	}

	// With retries a throttled store takes every kind of write in the end.
	var left atomic.Int32
	server.setFront(func(w http.ResponseWriter, _ *http.Request) bool {
		if left.Add(-1) >= 0 {
			answer(w, 503, "SlowDown", "please wait")
			return true
		}
		return false
	})
	var slept []time.Duration
	s := objstore.WithRetry(server.open(t), waits(&slept))
	for _, opts := range []objstore.PutOptions{{IfAbsent: true}, {}} {
		left.Store(3)
		if _, err := objstore.PutBytes(t.Context(), s, "k", []byte("x"), opts); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if len(slept) != 6 {
		t.Errorf("waited %v", slept)
	}
}

// TestS303LostAnswers closes the connection after the store has done its work.
func TestS303LostAnswers(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	var left atomic.Int32
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if left.Add(-1) >= 0 {
			server.dropAnswer(w, r)
		}
		return false
	})
	var slept []time.Duration
	plain := server.open(t)
	s := objstore.WithRetry(plain, waits(&slept))

	left.Store(2)
	if _, err := objstore.PutBytes(t.Context(), s, "k", []byte("x"), objstore.PutOptions{}); err != nil || len(slept) != 2 {
		t.Errorf("a plain put: %v after waiting %v", err, slept)
	}
	slept = nil
	left.Store(1)
	_, err := objstore.PutBytes(t.Context(), s, "created", []byte("mine"), objstore.PutOptions{IfAbsent: true})
	if err == nil || errors.Is(err, objstore.ErrPrecondition) || objstore.Permanent(err) || len(slept) > 0 {
		t.Errorf("a conditional put: %v after waiting %v", err, slept)
	}
	if data, _, err := objstore.ReadAll(t.Context(), s, "created", 10); err != nil || string(data) != "mine" {
		t.Errorf("it left %q (%v)", data, err)
	}
	for op, call := range calls(t.Context(), plain) {
		left.Store(1)
		// The HTTP client itself repeats reads that broke on a connection that
		// was used before; never writes.
		read := op == objstore.OpGet || op == objstore.OpList
		if err := call(); err == nil && !read {
			t.Errorf("%s: the lost answer was not noticed", op)
		} else if err != nil && (objstore.Permanent(err) || !strings.Contains(err.Error(), "closed by the store") && !strings.Contains(err.Error(), "EOF")) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestS303BodyCutOff ends a body before its length.
func TestS303BodyCutOff(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	plain := server.open(t)
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	if _, err := objstore.PutBytes(t.Context(), plain, "k", data, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var left atomic.Int32
	server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || left.Add(-1) < 0 {
			return false
		}
		answered := httptest.NewRecorder()
		server.fake.ServeHTTP(answered, r)
		for name, values := range answered.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answered.Code)
		_, _ = w.Write(answered.Body.Bytes()[:answered.Body.Len()/2])
		panic(http.ErrAbortHandler)
	})
	left.Store(1)
	if _, _, err := objstore.ReadAll(t.Context(), plain, "k", 1<<20); err == nil || objstore.Permanent(err) {
		t.Errorf("half a body: %v", err)
	}
	left.Store(3)
	var slept []time.Duration
	got, _, err := objstore.ReadAll(t.Context(), objstore.WithRetry(plain, waits(&slept)), "k", 1<<20)
	if err != nil || !bytes.Equal(got, data) || len(slept) != 3 {
		t.Errorf("with retries: %d bytes, %v, after waiting %v", len(got), err, slept)
	}
}

// TestS303PartsFail fails one part, then the completion: nothing is left behind
// and the retry stores the whole object.
func TestS303PartsFail(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	plain := server.open(t)
	objstore.SetPartSizes(plain, 1, 5<<20)
	data := bytes.Repeat([]byte("0123456789abcdef"), 700_000) // three parts
	for name, matches := range map[string]func(*http.Request) bool{
		"a part": func(r *http.Request) bool {
			return r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2"
		},
		"completion": func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") },
	} {
		var left atomic.Int32
		server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
			if matches(r) && left.Add(-1) >= 0 {
				answer(w, 500, "InternalError", "try again")
				return true
			}
			return false
		})
		left.Store(1)
		if _, err := objstore.PutBytes(t.Context(), plain, "k", data, objstore.PutOptions{}); err == nil || objstore.Permanent(err) {
			t.Errorf("%s failed: %v", name, err)
		}
		if _, _, err := plain.Get(t.Context(), "k", objstore.GetOptions{}); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%s failed and yet there is an object: %v", name, err)
		}
		left.Store(2)
		var slept []time.Duration
		if _, err := objstore.PutBytes(t.Context(), objstore.WithRetry(plain, waits(&slept)), "k", data, objstore.PutOptions{}); err != nil || len(slept) != 2 {
			t.Errorf("%s failed twice: %v after waiting %v", name, err, slept)
		}
		if got, _, err := objstore.ReadAll(t.Context(), plain, "k", 1<<30); err != nil || !bytes.Equal(got, data) {
			t.Errorf("read %d of %d bytes (%v)", len(got), len(data), err)
		}
		if n := uploads(t, server); n != 0 {
			t.Errorf("%d uploads are left", n)
		}
		if err := plain.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	// A conditional write is never in parts, whose conditions stores forget.
	server.requests()
	if _, err := objstore.PutBytes(t.Context(), plain, "k", data, objstore.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	if seen := server.requests(); len(seen) != 1 {
		t.Errorf("a conditional write made the requests %q", seen)
	}
}

// uploads counts the multipart uploads that were neither completed nor
// removed.
func uploads(t *testing.T, server *s3Server) int {
	t.Helper()
	w := httptest.NewRecorder()
	server.fake.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/bucket/?uploads", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK && w.Code != http.StatusNotFound {
		t.Fatalf("list uploads: status %d, %v", w.Code, err)
	}
	return strings.Count(string(body), "<UploadId>")
}

func TestS3ErrorClasses(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	for _, test := range []struct {
		status    int
		code      string
		want      error // nil: may pass
		permanent bool
		text      string
	}{
		{404, "NoSuchKey", objstore.ErrNotFound, true, ""},
		{404, "NoSuchBucket", objstore.ErrDenied, true, ""},
		{403, "AccessDenied", objstore.ErrDenied, true, "where listing is not allowed"},
		{403, "SignatureDoesNotMatch", objstore.ErrDenied, true, ""},
		{403, "InvalidAccessKeyId", objstore.ErrDenied, true, ""},
		{403, "", objstore.ErrDenied, true, ""},
		{401, "", objstore.ErrDenied, true, ""},
		{400, "AuthorizationHeaderMalformed", objstore.ErrDenied, true, ""},
		{301, "PermanentRedirect", objstore.ErrDenied, true, ""},
		{412, "PreconditionFailed", objstore.ErrPrecondition, true, ""},
		{412, "", objstore.ErrPrecondition, true, ""},
		{501, "NotImplemented", errors.ErrUnsupported, true, ""},
		{400, "EntityTooLarge", objstore.ErrTooLarge, true, ""},
		{403, "RequestTimeTooSkewed", nil, false, "clocks of this machine and of the store differ too much (the store's shows Mon, 30 Nov"},
		{400, "ExpiredToken", nil, false, ""},
		{500, "InternalError", nil, false, "REQ1"},
		{502, "", nil, false, "502"},
		{400, "RequestTimeout", nil, false, ""},
	} {
		server.setFront(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Date", "Mon, 30 Nov 2026 03:00:00 GMT")
			if test.code == "" {
				w.WriteHeader(test.status)
				return true
			}
			answer(w, test.status, test.code, "some words.")
			return true
		})
		for op, call := range calls(t.Context(), server.open(t)) {
			err := call()
			if op == objstore.OpDelete && test.want == objstore.ErrNotFound {
				if err != nil {
					t.Errorf("%s of an absent object: %v", op, err)
				}
				continue
			}
			if err == nil || test.want != nil && !errors.Is(err, test.want) || objstore.Permanent(err) != test.permanent || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s, status %d %s: error is %v, want %v", op, test.status, test.code, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), " :") {
				t.Errorf("%s: %q names nothing before its colon", op, err)
			}
		}
	}
}

// TestS3StrangeAnswers holds that a store that does not do what it should is
// not believed.
func TestS3StrangeAnswers(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	s := server.open(t)
	if _, err := objstore.PutBytes(t.Context(), s, "k", []byte("0123456789"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	server.setFront(func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	})
	for _, opts := range []objstore.GetOptions{{Offset: 2}, {Offset: -2}, {Length: 3}} {
		if _, _, err := s.Get(t.Context(), "k", opts); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%+v, the range ignored: %v", opts, err)
		}
	}
	for _, opts := range []objstore.GetOptions{{}, {Offset: -10}, {Offset: -99}, {Length: 10}, {Length: 99}} {
		if _, _, err := s.Get(t.Context(), "k", opts); err != nil {
			t.Errorf("%+v, the range rightly ignored: %v", opts, err)
		}
	}
	for name, contents := range map[string]string{
		"out of order":     "<Contents><Key>p/b</Key></Contents><Contents><Key>p/a</Key></Contents>",
		"twice":            "<Contents><Key>p/b</Key></Contents><Contents><Key>p/b</Key></Contents>",
		"before the start": "<Contents><Key>p/0</Key></Contents>",
		"another prefix":   "<Contents><Key>q/b</Key></Contents>",
	} {
		server.setFront(func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><IsTruncated>false</IsTruncated>`+contents+`</ListBucketResult>`)
			return true
		})
		var last error
		for _, err := range s.List(t.Context(), "p/", "p/0") {
			last = err
		}
		if !errors.Is(last, errors.ErrUnsupported) {
			t.Errorf("a listing %s: %v", name, last)
		}
	}
}

func TestS3Canceled(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	s := server.open(t)
	if _, err := objstore.PutBytes(t.Context(), s, "k", []byte("v"), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for op := range calls(t.Context(), s) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		server.setFront(func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			cancel() // while the request is under way
			<-release
			return true
		})
		if err := calls(ctx, s)[op](); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", op, err)
		}
		close(release)
	}
}

func TestS3ListAsksPageByPage(t *testing.T) {
	server := newS3Server(t, (*httptest.Server).Start)
	s := server.open(t)
	for i := range 1001 {
		if _, err := objstore.PutBytes(t.Context(), s, fmt.Sprintf("%05d", i), nil, objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server.requests()
	for range s.List(t.Context(), "", "") {
		break
	}
	if seen := server.requests(); len(seen) != 1 {
		t.Errorf("the first object took the requests %q", seen)
	}
	var keys []string
	for obj, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
	}
	if seen := server.requests(); len(seen) != 2 || len(keys) != 1001 || !slices.IsSorted(keys) {
		t.Errorf("%d objects took the requests %q", len(keys), seen)
	}
}
