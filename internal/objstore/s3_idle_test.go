package objstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// paced is a server whose bodies move a byte each pace, and then stand still.
type paced struct {
	pace  time.Duration
	bytes int
	// sent is how much it takes of a body it is sent.
	sent int
}

func (p *paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
		for range p.sent {
			time.Sleep(p.pace)
			if _, err := req.Body.Read(make([]byte, 1)); err != nil {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
		}
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: &pacedBody{req.Context(), *p}}, nil
}

type pacedBody struct {
	ctx context.Context
	paced
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.bytes == 0 {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	time.Sleep(b.pace)
	b.bytes--
	return copy(p[:1], "x"), nil
}

func (b *pacedBody) Close() error { return nil }

func TestBodiesThatStandStill(t *testing.T) {
	request := func(t *testing.T, body io.Reader) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://store/key", body)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	t.Run("received", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			resp, err := patientTransport{&paced{pace: bodyPatience - time.Second, bytes: 60}}.RoundTrip(request(t, nil))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * bodyPatience) // that we are slow is no fault of the server
			data, err := io.ReadAll(resp.Body)
			if !errors.Is(err, os.ErrDeadlineExceeded) || Permanent(err) {
				t.Errorf("a body that stands still ends with %v", err)
			}
			want := 10*bodyPatience + 60*(bodyPatience-time.Second) + bodyPatience
			if took := time.Since(begin); len(data) != 60 || took != want {
				t.Errorf("%d bytes in %v, want 60 in %v", len(data), took, want)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			_, err := patientTransport{&paced{pace: bodyPatience - time.Second, sent: 5}}.RoundTrip(request(t, strings.NewReader("0123456789")))
			if !errors.Is(err, os.ErrDeadlineExceeded) || Permanent(err) {
				t.Errorf("a body that nobody takes ends with %v", err)
			}
			if took, want := time.Since(begin), 5*(bodyPatience-time.Second)+bodyPatience; took != want {
				t.Errorf("after %v, want %v", took, want)
			}
			resp, err := patientTransport{&paced{pace: bodyPatience - time.Second, sent: 99}}.RoundTrip(request(t, strings.NewReader("0123456789")))
			if err != nil {
				t.Fatalf("a slow body that moves: %v", err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("told to end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			resp, err := patientTransport{&paced{}}.RoundTrip(request(t, nil).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller's own end is %v", err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// headed gives the answers of a transport the headers that S3 has.
type headed struct{ http.RoundTripper }

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Header = http.Header{"Etag": {`"e"`}, "Last-Modified": {"Mon, 30 Nov 2026 09:00:00 GMT"}, "Content-Length": {"100"}}
		resp.ContentLength, resp.Request = 100, req
	}
	return resp, err
}

// The store that Open makes has this patience, and what ran out of it is known
// for that: the call is made once more.
func TestS3ReadsNoBodyForEver(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Config{URL: "s3://bucket", Endpoint: "http://store", Region: "r", Transport: headed{&paced{}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*bodyPatience)
		defer cancel()
		begin, again := time.Now(), 0
		policy := RetryPolicy{Observe: func(string, error, time.Duration) { again++ }}
		_, _, err = ReadAll(ctx, WithRetry(s, policy), "key", 1000)
		if took := time.Since(begin); err == nil || !ranOut(err) || took < 2*bodyPatience || took > 3*bodyPatience || again != 1 {
			t.Errorf("%d calls more, %v in all: %v", again, took, err)
		}
	})
}
