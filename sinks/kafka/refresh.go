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

// refresher answers librdkafka's wish for a token. The wish comes at start,
// well before a token ends, and ten seconds after a failure; the valid token
// stays in use meanwhile.
type refresher struct {
	source  TokenSource
	session *session
	ctx     context.Context
	cancel  context.CancelFunc
	work    *sync.WaitGroup
	state   *refreshState
}

type refreshState struct {
	mu   sync.Mutex
	busy bool
	last error
}

// tokenTime bounds the making of a token: the SDK's chain may ask services
// that do not answer.
const tokenTime = 20 * time.Second

func newRefresher(ctx context.Context, source TokenSource, s *session) refresher {
	r := refresher{source: source, session: s, work: new(sync.WaitGroup), state: new(refreshState)}
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
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.state.last
}

// wanted makes a token aside: reports are not to wait for it.
func (r *refresher) wanted() {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if r.state.busy || r.ctx.Err() != nil {
		return
	}
	r.state.busy = true
	r.work.Go(func() {
		err := r.refresh()
		r.state.mu.Lock()
		r.state.busy, r.state.last = false, err
		r.state.mu.Unlock()
	})
}

// refresh makes a token and hands it over, or says why there is none.
func (r *refresher) refresh() error {
	p, log := r.session.p, r.session.sink.cfg.Logger
	fail := func(err error) error {
		if r.ctx.Err() != nil {
			return err
		}
		log.Warn("no token to sign in to kafka with; a valid one stays in use, and another is tried for", "err", err)
		if told := p.SetOAuthBearerTokenFailure(err.Error()); told != nil {
			log.Debug("librdkafka was not told of the missing token", "err", told)
		}
		return err
	}
	if r.source == nil {
		return fail(errors.New("sasl.mechanism is OAUTHBEARER and nothing makes tokens: set kafka.auth to aws-msk-iam, or sasl.oauthbearer.method to oidc"))
	}
	ctx, cancel := context.WithTimeout(r.ctx, tokenTime)
	defer cancel()
	t, err := r.source.Token(ctx)
	if err != nil {
		return fail(fmt.Errorf("make a token: %w", err))
	}
	err = p.SetOAuthBearerToken(kafka.OAuthBearerToken{TokenValue: t.Value, Expiration: t.Expires, Principal: t.Principal})
	if err != nil {
		return fail(fmt.Errorf("hand a token to librdkafka: %w", err))
	}
	return nil
}
