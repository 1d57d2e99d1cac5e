package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// Config says where a bucket is.
type Config struct {
	// URL is "s3://NAME[/PREFIX]" or "file:///DIR", taken literally: no
	// percent-encoding, no user, no query.
	URL string
	// Endpoint is the S3 endpoint, "https://HOST[:PORT]"; without a scheme it
	// is https. Empty means Amazon's own for the region.
	Endpoint string
	// Region that requests are signed for. Empty or "auto" is "auto" at an
	// endpoint of your own and an error at Amazon's, unless the endpoint names
	// the region. It is never looked up: that needs a permission of its own.
	Region string
	// CAFile is a PEM file of certificate authorities trusted in addition to
	// the system's, for s3. Empty is the file that AWS_CA_BUNDLE names, if it
	// names one: like credentials it is what other S3 clients take from the
	// environment.
	CAFile string
	// Transport replaces the HTTP transport, for tests; CAFile must be empty
	// then, and AWS_CA_BUNDLE is not looked at.
	Transport http.RoundTripper
}

// errURL starts every error about a bucket URL. The URL itself is never
// repeated before it is known to hold no password.
var errURL = errors.New("bucket url")

// Open returns the store that cfg names, below its prefix and without retries
// (see WithRetry). It makes no request: whether the bucket can be reached is
// seen at the first call. The directory of a file URL must exist; a missing
// one is ErrDenied, as a missing bucket is.
//
// Credentials for s3 come from the environment, the shared AWS files, or the
// role of the workload (web identity, container or instance), in that order,
// and are renewed as they run out.
func Open(_ context.Context, cfg Config) (Store, error) {
	scheme, rest, ok := strings.Cut(cfg.URL, "://")
	if !ok {
		return nil, fmt.Errorf("%w: want s3://NAME[/PREFIX] or file:///DIR", errURL)
	}
	switch scheme {
	case "s3":
		return openS3(cfg, rest)
	case "file":
		return openFile(rest)
	case "gs":
		return nil, fmt.Errorf("%w: gs:// is not supported; use s3://NAME with the endpoint https://storage.googleapis.com and an HMAC key", errURL)
	case "az":
		return nil, fmt.Errorf("%w: az:// is not supported; put an S3 gateway before the container and use s3://NAME with its endpoint", errURL)
	}
	return nil, fmt.Errorf("%w: scheme is neither s3:// nor file://", errURL)
}

func openFile(dir string) (Store, error) {
	if !strings.HasPrefix(dir, "/") {
		return nil, fmt.Errorf("%w: a file url has three slashes and an absolute path, file:///DIR", errURL)
	}
	if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &missingDirectory{err}
	} else if err != nil {
		return nil, fmt.Errorf("open file store: %w: %w", ErrDenied, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("open file store: %w: %s is not a directory", ErrDenied, dir)
	}
	return NewFile(dir)
}

// missingDirectory is that of a file bucket. It is to callers what a missing
// bucket is, in words of its own: nothing was refused.
type missingDirectory struct{ err error }

func (e *missingDirectory) Error() string {
	return "open file store: " + e.err.Error() + "; make the directory first"
}

func (e *missingDirectory) Unwrap() []error { return []error{ErrDenied, e.err} }

// splitBucket takes NAME[/PREFIX] apart.
func splitBucket(rest string) (name, prefix string, err error) {
	name, prefix, _ = strings.Cut(rest, "/")
	switch prefix = strings.TrimSuffix(prefix, "/"); {
	case strings.Contains(name, "@"):
		return "", "", fmt.Errorf("%w: credentials do not belong in it; they come from the environment", errURL)
	case strings.ContainsAny(rest, "?#"):
		return "", "", fmt.Errorf("%w: parameters do not belong in it; endpoint and region have settings of their own", errURL)
	case name == "":
		return "", "", fmt.Errorf("%w: no bucket name", errURL)
	case prefix != "":
		if err := CheckKey(prefix); err != nil {
			return "", "", fmt.Errorf("%w: prefix: %w", errURL, err)
		}
	}
	return name, prefix, nil
}
