package objstore

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// newChain returns the sources of credentials in the order they are asked.
// What a source says is never printed, only why it has nothing.
func newChain(transport http.RoundTripper) *chain {
	return &chain{sources: []source{
		{"environment", &credentials.EnvAWS{}},
		{"shared AWS files", &credentials.FileAWSCredentials{}},
		{"role of the workload", &credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}},
	}}
}

type source struct {
	name     string
	provider credentials.Provider
}

// chain is the first source that has credentials. Unlike the client's own
// chain it fails when none has: unsigned requests would only be refused later,
// for a reason that misleads.
type chain struct {
	sources []source
	current credentials.Provider
}

// errNoCredentials is an error of a chain. lost tells that there were
// credentials before, so that there may be again.
type errNoCredentials struct {
	cause error
	lost  bool
}

func (e *errNoCredentials) Error() string { return "no credentials: " + e.cause.Error() }

// RetrieveWithCredContext implements credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var reasons []error
	for _, s := range c.sources {
		value, err := s.provider.RetrieveWithCredContext(cc)
		half := (value.AccessKeyID == "") != (value.SecretAccessKey == "")
		switch {
		case err == nil && half:
			err = errors.New("key id and secret must both be set")
		case err == nil && value.AccessKeyID != "":
			c.current = s.provider
			return value, nil
		case err == nil, errors.Is(err, os.ErrNotExist):
			err = errors.New("nothing there")
		}
		reasons = append(reasons, fmt.Errorf("%s: %s", s.name, scrub(err.Error())))
		if half {
			break // meant to be used: another source would be another identity
		}
	}
	return credentials.Value{}, &errNoCredentials{cause: joinLine(reasons), lost: c.current != nil}
}

// Retrieve implements credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

// IsExpired implements credentials.Provider.
func (c *chain) IsExpired() bool { return c.current == nil || c.current.IsExpired() }

// joinLine joins errors in one line.
func joinLine(errs []error) error {
	var joined error
	for _, err := range errs {
		if joined == nil {
			joined = err
		} else {
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}
