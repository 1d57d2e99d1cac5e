package objstore

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

func openS3(cfg Config, rest string) (Store, error) {
	bucket, prefix, err := splitBucket(rest)
	if err != nil {
		return nil, err
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("%w: bucket %q: %w", errURL, bucket, err)
	}
	where, err := locate(cfg.Endpoint, cfg.Region)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	creds := credentials.New(newChain(transport))
	client, err := minio.NewCore(where.endpoint.Host, &minio.Options{
		Creds:        creds,
		Secure:       where.endpoint.Scheme == "https",
		Transport:    &watchedTransport{base: patientTransport{transport}},
		Region:       where.region,
		BucketLookup: where.lookup,
		// Retries are WithRetry's: the client's own know neither our deadlines
		// nor what must not be repeated.
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("open s3 client: %w", err)
	}
	client.SetS3EnableDualstack(false) // a private network may route IPv4 only
	s := &s3Store{client: client, creds: creds, bucket: bucket, singleMax: singleMax, partSize: partSize}
	return WithPrefix(s, prefix), nil
}

// location is where and how requests go.
type location struct {
	endpoint url.URL
	region   string
	lookup   minio.BucketLookupType
}

// locate resolves endpoint and region. At an endpoint that is not Amazon's the
// bucket goes into the path: its name need not resolve as a host there.
func locate(endpoint, region string) (location, error) {
	if region == "auto" {
		region = ""
	}
	if endpoint == "" {
		if region == "" {
			return location{}, errors.New("region is missing: at Amazon S3 set the bucket's region (AWS_REGION), elsewhere the endpoint (S3_ENDPOINT)")
		}
		return location{endpoint: url.URL{Scheme: "https", Host: "s3.amazonaws.com"}, region: region}, nil
	}
	u, err := parseEndpoint(endpoint)
	if err != nil {
		return location{}, err
	}
	host := url.URL{Scheme: u.Scheme, Host: u.Host}
	if s3utils.IsAmazonEndpoint(host) {
		if region == "" {
			region = s3utils.GetRegionFromURL(host)
		}
		if region == "" {
			return location{}, fmt.Errorf("region is missing: endpoint %s is Amazon's and does not name one; set the bucket's region (AWS_REGION)", u.Host)
		}
		return location{endpoint: host, region: region}, nil
	}
	if region == "" {
		region = "auto"
	}
	return location{endpoint: host, region: region, lookup: minio.BucketLookupPath}, nil
}

// parseEndpoint accepts HOST[:PORT] with or without scheme and last slash. It
// does not repeat what it refuses, which may hold a password.
func parseEndpoint(endpoint string) (*url.URL, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("endpoint: want https://HOST[:PORT]")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("endpoint: scheme is neither http nor https")
	case u.User != nil:
		return nil, errors.New("endpoint: credentials do not belong in it; they come from the environment")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("endpoint: parameters do not belong in it")
	case u.Path != "" && u.Path != "/":
		return nil, errors.New("endpoint: a path does not belong in it; the bucket and its prefix are in the bucket url")
	}
	return u, nil
}

// newTransport returns the transport of cfg, or one whose every wait for the
// other side is bounded.
func newTransport(cfg Config) (http.RoundTripper, error) {
	if cfg.Transport != nil {
		if cfg.CAFile != "" {
			return nil, errors.New("ca file given together with a transport of its own")
		}
		return cfg.Transport, nil
	}
	var roots *x509.CertPool // nil: the system's
	if file := cmp.Or(cfg.CAFile, os.Getenv("AWS_CA_BUNDLE")); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read ca file: %w", err)
		}
		if roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("read system certificates: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca file %s holds no certificate", file)
		}
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		ExpectContinueTimeout: 10 * time.Second,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true, // bytes are stored and read as they are
	}, nil
}
