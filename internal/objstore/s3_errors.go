package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7"
)

// attempt is what an answer said that the client does not hand on.
type attempt struct {
	mu         sync.Mutex
	retryAfter time.Duration
	date       string
}

type attemptKey struct{}

// watch returns a context whose requests note their answers in the attempt.
func watch(ctx context.Context) (context.Context, *attempt) {
	a := new(attempt)
	return context.WithValue(ctx, attemptKey{}, a), a
}

// watchedTransport fills in the attempt of a request's context.
type watchedTransport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *watchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if a, ok := req.Context().Value(attemptKey{}).(*attempt); ok && err == nil {
		a.mu.Lock()
		a.date = resp.Header.Get("Date")
		a.retryAfter = retryAfter(resp.Header)
		a.mu.Unlock()
	}
	return resp, err
}

// time is when the store gave its last answer, by its clock.
func (a *attempt) time() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := http.ParseTime(a.date)
	if err != nil {
		return time.Time{}
	}
	return t
}

// retryAfter reads RFC 9110 10.2.3. A date counts from the answer's own, so
// that no two clocks are compared.
func retryAfter(h http.Header) time.Duration {
	asked := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(asked); err == nil {
		return time.Duration(min(max(seconds, 0), 3600)) * time.Second
	}
	until, err1 := http.ParseTime(asked)
	now, err2 := http.ParseTime(h.Get("Date"))
	if err1 != nil || err2 != nil {
		return 0
	}
	return max(until.Sub(now), 0)
}

// s3Error is a failed request, in words that hold no URL and no secret.
type s3Error struct {
	text    string
	class   error // a sentinel, or nil for what may pass
	context error // the context's error, when that ended the request
	after   time.Duration
	refused bool // the store said that it did not do it
	silent  bool // it was given up because the store was silent for too long
}

func (e *s3Error) Error() string             { return e.text }
func (e *s3Error) RetryAfter() time.Duration { return e.after }
func (e *s3Error) NotApplied() bool          { return e.refused }
func (e *s3Error) Timeout() bool             { return e.silent }
func (e *s3Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.class, e.context} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// leftover is the error of a multipart upload whose parts are still there.
type leftover struct {
	error
	id string
}

func (e *leftover) Unwrap() error { return e.error }

// fail turns the client's error of an operation on a key into the store's.
func (s *s3Store) fail(op, key string, a *attempt, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &s3Error{after: a.retryAfter, silent: ranOut(err)}
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			e.context = ended
		}
	}
	var said minio.ErrorResponse
	var creds *errNoCredentials
	var detail string
	switch {
	case errors.As(err, &creds):
		detail = creds.Error()
		if !creds.lost {
			e.class = ErrDenied
		}
	case errors.As(err, &said) && said.StatusCode != 0:
		e.class, e.refused = classify(op, said)
		detail = describe(said, a.date)
		s.renew(said.Code)
	case errors.Is(err, ErrBody):
		return fmt.Errorf("%s %s: %w", op, key, err)
	default:
		detail = plain(err)
	}
	var left *leftover
	if errors.As(err, &left) {
		detail += "; the parts of upload " + left.id + " could not be removed"
	}
	// A listing of the whole bucket has an empty prefix.
	e.text = strings.TrimSuffix(op+" "+key, " ") + ": "
	if e.class != nil {
		e.text += e.class.Error() + ": "
	}
	e.text += s.redact(scrub(detail))
	return e
}

// classify returns the sentinel for an answer, nil when it may pass, and
// whether the store said that it did nothing.
func classify(op string, said minio.ErrorResponse) (class error, refused bool) {
	switch said.Code {
	case "NoSuchKey":
		return ErrNotFound, false
	case "PreconditionFailed":
		return ErrPrecondition, false
	case "NoSuchBucket", "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "TemporaryRedirect":
		return ErrDenied, false
	case "RequestTimeTooSkewed", "RequestExpired", "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return nil, true // refused at the door; passes with the next date or token
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestThrottled", "RequestLimitExceeded", "TooManyRequests":
		return nil, true
	case "ConditionalRequestConflict", "OperationAborted":
		return nil, true // another write was under way; S3 asks to repeat
	case "NotImplemented":
		return errors.ErrUnsupported, true
	case "EntityTooLarge":
		return ErrTooLarge, true
	}
	switch status := said.StatusCode; {
	case status == http.StatusTooManyRequests:
		return nil, true
	case status == http.StatusPreconditionFailed:
		return ErrPrecondition, false
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status >= 300 && status < 400:
		return ErrDenied, false
	case status == http.StatusNotFound && op == OpGet:
		return ErrNotFound, false
	}
	return nil, false
}

// describe says what the store answered.
func describe(said minio.ErrorResponse, date string) string {
	text := fmt.Sprintf("status %d", said.StatusCode)
	if said.Code != "" && !strings.ContainsAny(said.Code, " <") {
		text += " " + said.Code
		if said.Message != "" {
			text += ": " + strings.TrimRight(said.Message, ". ")
		}
	}
	switch said.Code {
	case "RequestTimeTooSkewed":
		text += "; the clocks of this machine and of the store differ too much (the store's shows " + date + ")"
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect":
		if said.Region != "" {
			text += "; the bucket's region is " + said.Region + ", set it (AWS_REGION)"
		}
	case "AccessDenied":
		text += "; a key that does not exist is refused too where listing is not allowed"
	}
	if said.RequestID != "" {
		text += " (request " + said.RequestID + ")"
	}
	return text
}

// renew drops credentials that the store calls worn out or unknown, so that
// the next request asks their source again.
func (s *s3Store) renew(code string) {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId":
		s.creds.Expire()
	}
}

// plain is the text of an error that is no answer of the store, without the
// URL that the HTTP client puts before it.
func plain(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		if strings.HasPrefix(ue.Err.Error(), "Connection closed by foreign host") {
			return "connection closed by the store"
		}
		return strings.ReplaceAll(ue.Err.Error(), ue.URL, "the store")
	}
	return err.Error()
}

// maxDetail bounds what is repeated of a foreign text, in bytes.
const maxDetail = 400

// scrub makes a foreign text one short line without query strings.
func scrub(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	for i, w := range words {
		if at := strings.IndexByte(w, '?'); at >= 0 && at < len(w)-1 {
			words[i] = w[:at] + "?..."
		}
	}
	text = strings.Join(words, " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "..."
	}
	return text
}

// redact removes the credentials in use from a text.
func (s *s3Store) redact(text string) string {
	if s.creds.IsExpired() {
		return text // nothing held that could be in it, and asking would make requests
	}
	value, err := s.creds.GetWithContext(nil)
	if err != nil {
		return text
	}
	for _, secret := range []string{value.SecretAccessKey, value.SessionToken, value.AccessKeyID} {
		if len(secret) >= 4 {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	return text
}
