//go:build cgo

package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"celldexport/sinks/kafka/mskiam"
	"celldexport/sinks/sinktest"
)

// keyServer gives credentials of a short life, as instance metadata does.
type keyServer struct {
	gate *iamGate
	life time.Duration

	mu     sync.Mutex
	n      int
	fail   int // answers that fail from now on
	failed int
}

func (k *keyServer) Retrieve(context.Context) (aws.Credentials, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail > 0 {
		k.fail--
		k.failed++
		return aws.Credentials{}, errors.New("the metadata service does not answer")
	}
	k.n++
	c := aws.Credentials{
		AccessKeyID: fmt.Sprintf("AKIA%d", k.n), SecretAccessKey: fmt.Sprintf("secret/%d+", k.n), SessionToken: fmt.Sprintf("session/%d=", k.n),
		CanExpire: true, Expires: time.Now().Add(k.life),
	}
	k.gate.mu.Lock()
	defer k.gate.mu.Unlock()
	k.gate.keys[c.AccessKeyID] = gateKey{c.SecretAccessKey, c.SessionToken, c.Expires}
	return c, nil
}

func (k *keyServer) load(region string) func(context.Context, ...func(*config.LoadOptions) error) (aws.Config, error) {
	return func(context.Context, ...func(*config.LoadOptions) error) (aws.Config, error) {
		return aws.Config{Region: region, Credentials: k}, nil
	}
}

// A producer that stays idle beyond the life of its token has another one
// when the next record comes, though making it failed at first.
func TestIAMTokensAreRenewedWhileIdle(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	gate := newGate(a.server, "eu-central-1")
	c := newCluster(t, kfake.ListenFn(gate.listen))
	keys := &keyServer{gate: gate, life: 10 * time.Second}
	source := &mskiam.Source{Brokers: c.ListenAddrs(), Load: keys.load("eu-central-1")}
	w := newWorld(t)
	w.begin(Config{Brokers: c.ListenAddrs(), IAM: true, Tokens: source, Properties: properties(t, "ssl.ca.location="+a.file)})
	w.Fill(0, 20, 5)
	w.Flush()
	first, _ := gate.let()

	keys.mu.Lock()
	keys.fail = 1
	keys.mu.Unlock()
	time.Sleep(keys.life + 2*time.Second)
	in, _ := gate.let()
	if keys.failed != 1 || slices.Equal(in, first) {
		t.Errorf("after the first token's life: %d failures, signed in %d times, before %d", keys.failed, len(in), len(first))
	}
	w.Logs.Wait(t, "the valid one stays in use")
	w.Fill(20, 40, 5)
	w.Flush()
	gate.hangUp()
	w.Fill(40, 60, 5)
	w.Flush()

	reader := kgo.SASL(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := source.Token(ctx)
		return oauth.Auth{Token: token.Value}, err
	}))
	list := consume(t, c.ListenAddrs(), reader, kgo.DialTLSConfig(a.client))
	w.check(list)
	if _, refused := gate.let(); len(refused) > 0 {
		t.Errorf("tokens were refused: %v", refused)
	}
	if strings.Contains(w.Logs.String(), "secret/") || strings.Contains(w.Logs.String(), in[0]) {
		t.Error("a secret or a token is logged")
	}
}

// Without credentials or a region nothing is lost, and what is missing is the
// reason that is told.
func TestIAMSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for name, test := range map[string]struct {
		region string
		fail   int
		want   string
	}{
		"region":      {"", 0, "no AWS region"},
		"credentials": {"eu-central-1", 1 << 30, "the metadata service does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newGate(a.server, "eu-central-1")
			c := newCluster(t, kfake.ListenFn(gate.listen))
			keys := &keyServer{gate: gate, life: time.Minute, fail: test.fail}
			source := &mskiam.Source{Brokers: c.ListenAddrs(), Load: keys.load(test.region)}
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), IAM: true, Tokens: source, Properties: properties(t, "ssl.ca.location="+a.file)})
			w.Fill(0, 5, 5)
			w.Logs.Wait(t, test.want)
			sinktest.Eventually(t, test.want, func() bool { _, trouble := w.sink.Report(); return strings.Contains(trouble, test.want) })
			if st := w.Status(); st.Dropped != 0 || st.BacklogEntries == 0 {
				t.Errorf("without a token %d records are dropped, %d entries wait", st.Dropped, st.BacklogEntries)
			}
		})
	}
}

// The default chain of the SDK is asked: here its environment and a profile.
func TestIAMUsesTheDefaultChain(t *testing.T) {
	a := newAuthority(t)
	gate := newGate(a.server, "us-west-2")
	gate.keys["AKIAENV"] = gateKey{"env-secret", "env-session", time.Now().Add(time.Hour)}
	gate.keys["AKIAFILE"] = gateKey{"file-secret", "", time.Now().Add(time.Hour)}
	shared := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(shared, []byte("[fleet]\naws_access_key_id=AKIAFILE\naws_secret_access_key=file-secret\nregion=us-west-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, environ := range map[string]map[string]string{
		"environment": {"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "env-secret", "AWS_SESSION_TOKEN": "env-session", "AWS_REGION": "us-west-2"},
		"profile":     {"AWS_PROFILE": "fleet", "AWS_SHARED_CREDENTIALS_FILE": shared},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
				t.Setenv(name, "")
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			t.Setenv("AWS_CONFIG_FILE", none)
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
			for name, value := range environ {
				t.Setenv(name, value)
			}
			c := newCluster(t, kfake.ListenFn(gate.listen))
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), IAM: true, Properties: properties(t, "ssl.ca.location="+a.file)})
			w.Fill(0, 5, 5)
			w.Flush()
		})
	}
}
