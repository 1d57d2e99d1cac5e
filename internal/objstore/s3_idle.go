package objstore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// bodyPatience is how long one byte of a body may take in either direction. A
// body that moves may take as long as it likes.
const bodyPatience = time.Minute

// patientTransport bounds the waits of a transport that its own limits leave
// out: for the next byte of a body. A server that stops in the middle of one
// would hold a reader for ever.
type patientTransport struct{ http.RoundTripper }

// RoundTrip is that of the transport. An error of a body that stood still
// wraps os.ErrDeadlineExceeded.
func (p patientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = newBody(req.Body, cancel, false)
	}
	resp, err := p.RoundTripper.RoundTrip(req)
	if err != nil {
		err = stalled(ctx, err)
		cancel(nil)
		return nil, err
	}
	b := newBody(resp.Body, cancel, true)
	b.ctx = ctx
	resp.Body = b
	return resp, nil
}

// body is a body that is given up when it stands still.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	// answer says that it comes from the server: time counts while it is
	// read. Of a body that is sent, it counts while nobody asks for more.
	answer bool
}

func newBody(b io.ReadCloser, cancel context.CancelCauseFunc, answer bool) *body {
	timer := time.AfterFunc(bodyPatience, func() {
		cancel(fmt.Errorf("no byte of a body moved for %v: %w", bodyPatience, os.ErrDeadlineExceeded))
	})
	if answer {
		timer.Stop()
	}
	return &body{ReadCloser: b, cancel: cancel, timer: timer, answer: answer}
}

// Read reads and watches the time.
func (b *body) Read(p []byte) (int, error) {
	if !b.answer {
		b.timer.Reset(bodyPatience)
		return b.ReadCloser.Read(p)
	}
	b.timer.Reset(bodyPatience)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = stalled(b.ctx, err)
	}
	return n, err
}

// Close ends the watch, and the request whose answer this is.
func (b *body) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	if b.answer {
		b.cancel(nil)
	}
	return err
}

// stalled is the reason why a request was given up, or err.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && cause != context.Canceled && cause != context.DeadlineExceeded { //nolint:errorlint // only our own causes differ
		return cause
	}
	return err
}
