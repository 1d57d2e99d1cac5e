// Package mskiam makes the tokens that a Kafka client signs in to Amazon MSK
// with: each is a SigV4-signed kafka-cluster:Connect request, made from the
// credentials of the AWS SDK's default chain (environment, shared profiles
// with SSO, web identity, ECS and EKS Pod Identity, instance metadata).
package mskiam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Token is what a client signs in with.
type Token struct {
	Value string
	// Principal names who signs in.
	Principal string
	// Expires is when the brokers stop taking the token: 15 minutes after it
	// was made, or when the credentials end if that comes first.
	Expires time.Time
}

// Source makes tokens. Its zero value signs with the default chain in the
// region of the environment or the profile.
type Source struct {
	// Brokers are the bootstrap servers; their names tell the region.
	Brokers []string
	// Load replaces the AWS SDK's default chain, for tests.
	Load func(context.Context, ...func(*config.LoadOptions) error) (aws.Config, error)
	// Now is the clock that lifetimes are judged by, time.Now by default.
	Now func() time.Time
}

// ErrNoRegion says that neither the brokers' names nor the environment tell
// the region to sign for.
var ErrNoRegion = errors.New("no AWS region: the broker names hold none (kafka.<region>.amazonaws.com or kafka-serverless.<region>.amazonaws.com), and neither AWS_REGION nor the profile names one")

// Token makes a token. Credentials are resolved anew each time, so rotated
// ones are picked up.
func (s *Source) Token(ctx context.Context) (Token, error) {
	load := s.Load
	if load == nil {
		load = config.LoadDefaultConfig
	}
	cfg, err := load(ctx, config.WithCredentialsCacheOptions(wholeLife))
	if err != nil {
		return Token{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	region := Region(s.Brokers)
	if region == "" {
		region = cfg.Region
	}
	if region == "" {
		return Token{}, ErrNoRegion
	}
	if cfg.Credentials == nil {
		return Token{}, errors.New("no AWS credentials are configured")
	}
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return Token{}, fmt.Errorf("get AWS credentials: %w", err)
	}
	value, expiry, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, region, fixed{credentials})
	if err != nil {
		return Token{}, fmt.Errorf("sign the MSK token for region %s: %w", region, err)
	}
	t := Token{Value: value, Principal: principal(credentials), Expires: time.UnixMilli(expiry)}
	if credentials.CanExpire && credentials.Expires.Before(t.Expires) {
		t.Expires = credentials.Expires
	}
	if !t.Expires.After(s.now()) {
		return Token{}, fmt.Errorf("the AWS credentials expired at %s", t.Expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// wholeLife has credentials say when they really end: for containers the SDK
// takes five minutes off, so that keys that are valid for another four would
// count as expired.
func wholeLife(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }

func (s *Source) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// principal names the signer. The access key's id is no secret, but says no
// more to a reader of logs than the account does.
func principal(c aws.Credentials) string {
	if c.AccountID != "" {
		return c.AccountID
	}
	return "exportd"
}

// fixed gives the credentials that the expiry was read from, so that token
// and expiry are of the same ones.
type fixed struct{ aws.Credentials }

func (f fixed) Retrieve(context.Context) (aws.Credentials, error) { return f.Credentials, nil }

var mskName = regexp.MustCompile(`(?i)(?:^|\.)kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-[0-9]+)\.amazonaws\.com(?:\.cn)?\.?$`)

// Region is the region that the brokers' names hold, "" when none does.
func Region(brokers []string) string {
	for _, b := range brokers {
		host, _, err := net.SplitHostPort(b)
		if err != nil {
			host = b
		}
		if m := mskName.FindStringSubmatch(host); m != nil {
			return strings.ToLower(m[1])
		}
	}
	return ""
}
