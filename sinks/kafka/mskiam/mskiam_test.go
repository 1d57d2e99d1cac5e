package mskiam

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

func TestRegion(t *testing.T) {
	for broker, want := range map[string]string{
		"b-1.prod.abc123.c2.kafka.us-east-1.amazonaws.com:9098":           "us-east-1",
		"b-1-public.prod.abc123.c2.kafka.eu-central-1.amazonaws.com:9198": "eu-central-1",
		"boot-abc.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098":  "ap-southeast-2",
		"B-2.PROD.ABC123.C2.KAFKA.US-GOV-WEST-1.AMAZONAWS.COM:9098":       "us-gov-west-1",
		"b-1.prod.abc123.c2.kafka.cn-north-1.amazonaws.com.cn:9098":       "cn-north-1",
		"b-1.prod.abc123.c2.kafka.us-east-1.amazonaws.com":                "us-east-1",
		"kafka.internal:9098": "",
		"b-1.kafka.us-east-1.amazonaws.com.attacker.example:9098": "",
		"notkafka.us-east-1.amazonaws.com:9098":                   "",
		"kafka-0.kafka:9092":                                      "",
	} {
		if got := Region([]string{broker}); got != want {
			t.Errorf("%s is in region %q, got %q", broker, want, got)
		}
	}
	if got := Region([]string{"proxy:9098", "boot.c1.kafka-serverless.eu-west-1.amazonaws.com:9098"}); got != "eu-west-1" {
		t.Errorf("of two brokers: %q", got)
	}
}

func source(region string, c aws.Credentials, brokers ...string) *Source {
	return &Source{Brokers: brokers, Load: func(context.Context, ...func(*config.LoadOptions) error) (aws.Config, error) {
		return aws.Config{Region: region, Credentials: credentials.StaticCredentialsProvider{Value: c}}, nil
	}}
}

func TestTokenLives(t *testing.T) {
	keys := aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret", SessionToken: "session"}
	now := time.Now()
	token, err := source("eu-west-1", keys).Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := token.Expires.Sub(now); left > 15*time.Minute+time.Second || left < 14*time.Minute {
		t.Errorf("a token of lasting credentials lives %v", left)
	}
	keys.CanExpire, keys.Expires = true, now.Add(90*time.Second)
	if token, err = source("eu-west-1", keys).Token(t.Context()); err != nil || !token.Expires.Equal(keys.Expires) {
		t.Errorf("the token ends at %v (%v), its credentials at %v", token.Expires, err, keys.Expires)
	}
	keys.Expires = now.Add(time.Hour)
	if token, err = source("eu-west-1", keys).Token(t.Context()); err != nil || token.Expires.After(now.Add(16*time.Minute)) {
		t.Errorf("the token ends at %v (%v), more than 15 minutes on", token.Expires, err)
	}
	keys.Expires = now.Add(-time.Second)
	if _, err = source("eu-west-1", keys).Token(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("of expired credentials: %v", err)
	}
}

// The brokers' names win over the region of the environment.
func TestTokenRegion(t *testing.T) {
	keys := aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret"}
	for _, test := range []struct{ env, broker, want string }{
		{"us-east-1", "b.c1.kafka.eu-west-3.amazonaws.com:9098", "eu-west-3"},
		{"us-east-1", "b.c1.kafka-serverless.eu-west-3.amazonaws.com:9098", "eu-west-3"},
		{"us-east-1", "kafka.internal:9098", "us-east-1"},
	} {
		token, err := source(test.env, keys, test.broker).Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(token.Value)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(string(raw))
		if err != nil || u.Host != "kafka."+test.want+".amazonaws.com" || !strings.Contains(u.Query().Get("X-Amz-Credential"), "/"+test.want+"/") {
			t.Errorf("%+v: the token is for %s, %v", test, u, err)
		}
	}
	if _, err := source("", keys, "kafka.internal:9098").Token(t.Context()); !errors.Is(err, ErrNoRegion) {
		t.Errorf("without a region: %v", err)
	}
}
