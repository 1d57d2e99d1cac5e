//go:build cgo

package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"celldexport/sinks/sinktest"
)

// authority is a private certificate authority with one server certificate.
type authority struct {
	server *tls.Config
	client *tls.Config
	// file holds the authority's certificate.
	file string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	rootKey, leafKey := key(), key()
	rootDER := sign(t, root, root, rootKey, rootKey)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		NotBefore: root.NotBefore, NotAfter: root.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER := sign(t, leaf, root, leafKey, rootKey)
	a := authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
	if err := os.WriteFile(a.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	a.server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}}}
	a.client = &tls.Config{RootCAs: pool}
	return a
}

func sign(t *testing.T, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestSignsInOverTLSWithAPrivateAuthority(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	const user, password = "celld", "a=b#c"
	for mechanism, ours := range map[string]sasl.Mechanism{
		"":              nil,
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
	} {
		t.Run("TLS "+mechanism, func(t *testing.T) {
			opts := []kfake.Opt{kfake.TLS(a.server)}
			read := []kgo.Opt{kgo.DialTLSConfig(a.client)}
			lines := []string{"ssl.ca.location=" + a.file, "security.protocol=SSL"}
			if mechanism != "" {
				opts = append(opts, kfake.EnableSASL(), kfake.Superuser(mechanism, user, password))
				read = append(read, kgo.SASL(ours))
				lines = []string{lines[0], "security.protocol = SASL_SSL\r", "sasl.mechanisms=" + mechanism, "sasl.username=" + user, "sasl.password=" + password + "\r"}
			}
			c := newCluster(t, opts...)
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, lines...)})
			w.Fill(0, 60, 5)
			w.Flush()
			w.check(consume(t, c.ListenAddrs(), read...))
			if strings.Contains(w.Logs.String(), password) {
				t.Error("the password is logged")
			}
		})
	}
}

// What keeps the client out is the reason that is told, without the password.
func TestSignInFailuresAreTold(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"wrong password":    {[]string{"security.protocol=SASL_SSL", "ssl.ca.location=" + a.file, "sasl.mechanism=PLAIN", "sasl.username=celld", "sasl.password=wrong-hunter2"}, "uthentication"},
		"unknown authority": {[]string{"security.protocol=SASL_SSL", "ssl.ca.location=" + other.file, "sasl.mechanism=PLAIN", "sasl.username=celld", "sasl.password=wrong-hunter2"}, "certificate verify failed"},
		"no TLS":            {nil, "connection closed by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, kfake.TLS(a.server), kfake.EnableSASL(), kfake.Superuser("PLAIN", "celld", "right"))
			w := newWorld(t)
			w.begin(Config{Brokers: c.ListenAddrs(), Properties: properties(t, test.lines...)})
			w.Fill(0, 5, 5)
			sinktest.Eventually(t, test.want, func() bool { _, trouble := w.sink.Report(); return strings.Contains(trouble, test.want) })
			if strings.Contains(w.Logs.String(), "hunter2") {
				t.Error("the password is logged")
			}
		})
	}
}
