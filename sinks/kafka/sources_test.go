//go:build cgo

package kafka

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/twmb/franz-go/pkg/kfake"

	"celldexport/sinks/kafka/mskiam"
	"celldexport/sinks/sinktest"
)

// chainLink is one source of the SDK's default chain.
type chainLink struct {
	// use prepares the environment; give makes the source hand out the
	// issuer's credentials of now; take makes it fail.
	use, give, take func(t *testing.T, i *issuer, dir string)
	// lasting credentials do not say when they end.
	lasting bool
	// redirected calls an address that is fixed.
	redirected bool
	// why is what is told when the source fails.
	why string
}

func nothing(*testing.T, *issuer, string) {}

// refuse has the issuer refuse.
func refuse(_ *testing.T, i *issuer, _ string) { i.set(func() { i.fail = true }) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fileToken renews the token file that a caller shows, as kubelet does.
func fileToken(t *testing.T, i *issuer, dir string) {
	shown := fmt.Sprintf("hush-token-%d", i.n)
	put(t, filepath.Join(dir, "token"), shown)
	i.set(func() { i.shown = shown })
}

// signedIn is what "aws sso login" leaves behind.
func signedIn(t *testing.T, i *issuer, dir string) {
	shown := fmt.Sprintf("hush-access-%d", i.n)
	name := sha1.Sum([]byte("fleet"))
	put(t, filepath.Join(dir, ".aws/sso/cache", hex.EncodeToString(name[:])+".json"),
		fmt.Sprintf(`{"accessToken":%q,"expiresAt":%q}`, shown, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	i.set(func() { i.shown = shown })
}

func chainLinks() map[string]chainLink {
	return map[string]chainLink{
		"environment": {
			lasting: true, use: nothing, why: "get AWS credentials",
			give: func(t *testing.T, i *issuer, _ string) {
				c := i.credentials()
				t.Setenv("AWS_ACCESS_KEY_ID", c.id)
				t.Setenv("AWS_SECRET_ACCESS_KEY", c.secret)
				t.Setenv("AWS_SESSION_TOKEN", c.session)
			},
			take: func(t *testing.T, _ *issuer, _ string) { t.Setenv("AWS_ACCESS_KEY_ID", "") },
		},
		"shared profile": {
			lasting: true, why: "failed to get shared config profile, fleet",
			use: func(t *testing.T, _ *issuer, dir string) {
				t.Setenv("AWS_PROFILE", "fleet")
				t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
			},
			give: func(t *testing.T, i *issuer, dir string) {
				c := i.credentials()
				put(t, filepath.Join(dir, "credentials"), fmt.Sprintf(
					"[fleet]\naws_access_key_id=%s\naws_secret_access_key=%s\naws_session_token=%s\n", c.id, c.secret, c.session))
			},
			take: func(t *testing.T, _ *issuer, dir string) { put(t, filepath.Join(dir, "credentials"), "") },
		},
		"SSO": {
			why: "AccessDenied", give: signedIn, take: refuse,
			use: func(t *testing.T, i *issuer, dir string) {
				t.Setenv("HOME", dir)
				t.Setenv("AWS_PROFILE", "fleet")
				t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
				t.Setenv("AWS_ENDPOINT_URL_SSO", i.server.URL)
				put(t, filepath.Join(dir, "config"), fmt.Sprintf("[profile fleet]\nsso_session=fleet\nsso_account_id=%s\nsso_role_name=%s\n"+
					"[sso-session fleet]\nsso_region=us-west-2\nsso_start_url=https://fleet.awsapps.com/start\n", issuerAccount, issuerRole))
			},
		},
		"web identity": {
			why: "AccessDenied", give: fileToken, take: refuse,
			use: func(t *testing.T, i *issuer, dir string) {
				t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::"+issuerAccount+":role/"+issuerRole)
				t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", filepath.Join(dir, "token"))
				t.Setenv("AWS_ENDPOINT_URL_STS", i.server.URL)
			},
		},
		"ECS": {
			redirected: true, why: "AccessDenied", give: nothing, take: refuse,
			use: func(t *testing.T, _ *issuer, _ string) {
				t.Setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/container/role")
			},
		},
		"ECS, full address": {
			why: "AccessDenied", give: nothing, take: refuse,
			use: func(t *testing.T, i *issuer, _ string) {
				i.shown = "hush-authorization"
				t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", i.server.URL+"/container/role")
				t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", i.shown)
			},
		},
		"EKS Pod Identity": {
			why: "AccessDenied", give: fileToken, take: refuse,
			use: func(t *testing.T, i *issuer, dir string) {
				t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", i.server.URL+"/container/role")
				t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", filepath.Join(dir, "token"))
			},
		},
		"instance metadata": {
			why: "403", give: nothing, take: refuse,
			use: func(t *testing.T, i *issuer, _ string) {
				t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
				t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", i.server.URL)
			},
		},
	}
}

// bareEnvironment is one in which the chain finds nothing.
func bareEnvironment(t *testing.T, dir string) {
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", dir)
	t.Setenv("AWS_REGION", "us-west-2")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "none"))
}

// redirect sends requests to another host.
type redirect struct{ to *url.URL }

func (r redirect) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Host = r.to.Host
	return http.DefaultTransport.RoundTrip(q)
}

// transported is the default chain as it is, but for the transport to the
// container's agent: its address is fixed.
func transported(t *testing.T, i *issuer) *mskiam.Source {
	to, err := url.Parse(i.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &mskiam.Source{Load: func(ctx context.Context, opts ...func(*config.LoadOptions) error) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, append(opts, config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) {
			o.HTTPClient = &http.Client{Transport: redirect{to}}
		}))...)
	}}
}

// signer is the access key that a token was signed with.
func signer(t testing.TB, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(u.Query().Get("X-Amz-Credential"), "/")
	return id
}

// chained is a sink that signs in with what the chain finds.
type chained struct {
	*world
	gate    *iamGate
	session atomic.Pointer[session] // the newest
}

func newChained(t *testing.T, gate *iamGate) *chained {
	c := &chained{world: newWorld(t), gate: gate}
	c.opened = func(s *session) { c.session.Store(s) }
	return c
}

// refreshed has the session make another token, as librdkafka asks for, and
// returns when it is made.
func (c *chained) refreshed() {
	c.t.Helper()
	r := c.session.Load().token
	r.mu.Lock()
	r.valid = time.Time{}
	r.mu.Unlock()
	r.wanted()
	sinktest.Eventually(c.t, "another token is in use", func() bool { now, err := c.valid(); return err == nil && !now.IsZero() })
}

// valid is until when the token in use is, and why there is no newer one.
func (c *chained) valid() (time.Time, error) {
	r := c.session.Load().token
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.valid, r.last
}

// signedInWith checks that the cluster let in the key just now.
func (c *chained) signedInWith(want issued, lasting bool) {
	c.t.Helper()
	in, refused := c.gate.let()
	if len(in) == 0 || len(refused) > 0 {
		c.t.Fatalf("%d tokens were let in, refused: %v", len(in), refused)
	}
	if got := signer(c.t, in[len(in)-1]); got != want.id {
		c.t.Errorf("signed in with %s, the source has %s", got, want.id)
	}
	valid, err := c.valid()
	most := time.Now().Add(15 * time.Minute)
	switch {
	case err != nil:
		c.t.Errorf("no token: %v", err)
	case !lasting && want.ends.Before(most):
		if !valid.Equal(want.ends) {
			c.t.Errorf("the token is valid until %v, its credentials until %v", valid, want.ends)
		}
	case valid.After(most) || valid.Before(most.Add(-time.Minute)):
		c.t.Errorf("the token is valid until %v, want 15 minutes from now, %v", valid, most)
	}
}

// Every source of the default chain signs the sink in: with its key, for the
// shorter of 15 minutes and what is left of the credentials. Rotated keys are
// in the next token. When the source fails the valid token stays and the
// reason is told, with nothing secret in it.
func TestIAMSources(t *testing.T) {
	a := newAuthority(t)
	for name, link := range chainLinks() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bareEnvironment(t, dir)
			gate := newGate(a.server, "us-west-2")
			i := newIssuer(t, gate)
			cluster := newCluster(t, kfake.ListenFn(gate.listen))
			link.use(t, i, dir)
			first := i.rotate(time.Hour)
			link.give(t, i, dir)

			c := newChained(t, gate)
			cfg := Config{Brokers: cluster.ListenAddrs(), IAM: true, Properties: properties(t, "ssl.ca.location="+a.file)}
			if link.redirected {
				cfg.Tokens = transported(t, i)
			}
			c.begin(cfg)
			c.Fill(0, 5, 5)
			c.Flush()
			c.signedInWith(first, link.lasting)

			// Two minutes are less than what the SDK keeps away from the end.
			second := i.rotate(2 * time.Minute)
			link.give(t, i, dir)
			c.refreshed()
			gate.hangUp()
			c.Fill(5, 10, 5)
			c.Flush()
			c.signedInWith(second, link.lasting)

			link.take(t, i, dir)
			c.session.Load().token.wanted()
			c.Logs.Wait(t, "the valid one stays in use")
			c.Logs.Wait(t, link.why)
			c.Fill(10, 15, 5)
			c.Flush()
			if said := c.Logs.String(); strings.Contains(said, "hush") || strings.Contains(said, "ASIA") || strings.Contains(said, metadataToken) {
				t.Errorf("a secret, a token or a key is logged:\n%s", said)
			}
		})
	}
}

// A sink that is idle asks its source again before the credentials end, and
// has the new ones when the next record comes.
func TestIAMSourceIsAskedAgainWhileIdle(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	bareEnvironment(t, dir)
	gate := newGate(a.server, "us-west-2")
	i := newIssuer(t, gate)
	cluster := newCluster(t, kfake.ListenFn(gate.listen))
	link := chainLinks()["EKS Pod Identity"]
	link.use(t, i, dir)
	i.rotate(12 * time.Second)
	link.give(t, i, dir)
	c := newChained(t, gate)
	c.begin(Config{Brokers: cluster.ListenAddrs(), IAM: true, Properties: properties(t, "ssl.ca.location="+a.file)})
	c.Fill(0, 5, 5)
	c.Flush()
	first, _ := c.valid()

	second := i.rotate(time.Hour)
	link.give(t, i, dir)
	sinktest.Eventually(t, "a token of the new credentials", func() bool { now, err := c.valid(); return err == nil && now.After(first.Add(time.Minute)) })
	var asked time.Time
	i.set(func() { asked = i.asked })
	if !asked.Before(first) {
		t.Errorf("the source was asked again at %v, the first token ended at %v", asked, first)
	}
	gate.hangUp()
	c.Fill(5, 10, 5)
	c.Flush()
	c.signedInWith(second, false)
}
