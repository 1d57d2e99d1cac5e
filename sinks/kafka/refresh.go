//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// refresher answers librdkafka's wish for a token, which comes at the start
// and when four fifths of a token's life are over, traffic or not. While
// there is no new one, the valid token stays in use and another is tried for.
type refresher struct {
	source  TokenSource
	session *session
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu   sync.Mutex
	busy bool
	last error
	// valid is until when the brokers take the token in use.
	valid time.Time
}

const (
	// tokenTime bounds the making of a token: the SDK's chain may ask services
	// that do not answer.
	tokenTime = 20 * time.Second
	// tokenRetryMin and tokenRetryMax bound the wait after a failure.
	tokenRetryMin = 500 * time.Millisecond
	tokenRetryMax = 10 * time.Second
)

func newRefresher(ctx context.Context, source TokenSource, s *session) *refresher {
	r := &refresher{source: source, session: s}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// stop ends what is under way.
func (r *refresher) stop() {
	r.cancel()
	r.work.Wait()
}

// failure is why there is no new token, nil when there is one.
func (r *refresher) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// wanted makes a token aside: reports are not to wait for it.
func (r *refresher) wanted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy || r.ctx.Err() != nil {
		return
	}
	r.busy = true
	r.work.Go(func() {
		r.untilMade()
		r.mu.Lock()
		r.busy = false
		r.mu.Unlock()
	})
}

// untilMade tries until there is a token or the session ends.
func (r *refresher) untilMade() {
	for delay := tokenRetryMin; ; delay = min(2*delay, tokenRetryMax) {
		err := r.make()
		if r.ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.last = err
		r.mu.Unlock()
		if err == nil {
			return
		}
		r.tell(err)
		if !sleep(r.ctx, delay) {
			return
		}
	}
}

// tell says why there is no token: in the log, and to librdkafka once it has
// none that is valid.
func (r *refresher) tell(err error) {
	log := r.session.sink.cfg.Logger
	r.mu.Lock()
	valid := r.valid
	r.mu.Unlock()
	if r.session.sink.cfg.Now().Before(valid) {
		log.Warn("no new token to sign in to kafka with; the valid one stays in use, and another is tried for", "err", err, "valid_until", valid)
		return
	}
	log.Error("no token to sign in to kafka with; another is tried for", "err", err)
	if told := r.session.p.SetOAuthBearerTokenFailure(err.Error()); told != nil {
		log.Debug("librdkafka was not told of the missing token", "err", told)
	}
}

// make makes a token and hands it over.
func (r *refresher) make() error {
	if r.source == nil {
		return errors.New("sasl.mechanism is OAUTHBEARER and nothing makes tokens: set kafka.auth to aws-msk-iam, or sasl.oauthbearer.method to oidc")
	}
	ctx, cancel := context.WithTimeout(r.ctx, tokenTime)
	defer cancel()
	t, err := r.source.Token(ctx)
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	err = r.session.p.SetOAuthBearerToken(kafka.OAuthBearerToken{TokenValue: t.Value, Expiration: t.Expires, Principal: t.Principal})
	if err != nil {
		return fmt.Errorf("hand a token to librdkafka: %w", err)
	}
	r.mu.Lock()
	r.valid = t.Expires
	r.mu.Unlock()
	return nil
}
