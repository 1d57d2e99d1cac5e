//go:build cgo

package kafka

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// iamGate is what stands before the brokers of a cluster with IAM: TLS, then
// SASL/OAUTHBEARER with a token that it checks as a signed request. It ends a
// connection whose session is over.
type iamGate struct {
	tls    *tls.Config
	region string
	// keys are secrets and ends of credentials by access key.
	mu      sync.Mutex
	keys    map[string]gateKey
	tokens  []string // those that were let in, in order
	refused []string
	open    map[*gateConn]struct{}
}

type gateKey struct {
	secret, session string
	expires         time.Time
}

func newGate(server *tls.Config, region string) *iamGate {
	return &iamGate{tls: server, region: region, keys: map[string]gateKey{}, open: map[*gateConn]struct{}{}}
}

// listen is the listener of a cluster behind the gate.
func (g *iamGate) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return gateListener{l, g}, err
}

type gateListener struct {
	net.Listener
	gate *iamGate
}

func (l gateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &gateConn{Conn: tls.Server(c, l.gate.tls), gate: l.gate}
	l.gate.mu.Lock()
	l.gate.open[g] = struct{}{}
	l.gate.mu.Unlock()
	return g, nil
}

// hangUp ends every connection.
func (g *iamGate) hangUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		c.Conn.Close()
	}
	clear(g.open)
}

func (g *iamGate) let() (in []string, out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string{}, g.tokens...), append([]string{}, g.refused...)
}

// gateConn hands requests to the broker once the client is signed in.
type gateConn struct {
	net.Conn
	gate *iamGate
	in   bytes.Buffer
	ends time.Time
}

func (c *gateConn) Read(p []byte) (int, error) {
	for c.in.Len() == 0 {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(frame))
		if n < 8 || n > 100<<20 {
			return 0, errors.New("no frame of the protocol")
		}
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		if err := c.frame(frame); err != nil {
			c.Conn.Close()
			return 0, err
		}
	}
	return c.in.Read(p)
}

// frame handles one request: signing in here, the rest by the broker.
func (c *gateConn) frame(frame []byte) error {
	key, version := int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))
	switch kmsg.Key(key) {
	case kmsg.ApiVersions:
	case kmsg.SASLHandshake:
		resp := kmsg.NewPtrSASLHandshakeResponse()
		resp.SupportedMechanisms = []string{"OAUTHBEARER"}
		return c.answer(frame, version, resp)
	case kmsg.SASLAuthenticate:
		return c.signIn(frame, version)
	default:
		if !time.Now().Before(c.ends) {
			return errors.New("not signed in, or no longer")
		}
	}
	c.in.Write(frame)
	return nil
}

func (c *gateConn) answer(request []byte, version int16, resp kmsg.Response) error {
	resp.SetVersion(version)
	body := append([]byte{}, request[8:12]...) // the correlation id
	if resp.IsFlexible() {
		body = append(body, 0)
	}
	body = resp.AppendTo(body)
	_, err := c.Conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func (c *gateConn) signIn(frame []byte, version int16) error {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SetVersion(version)
	at := 12
	client := int(int16(binary.BigEndian.Uint16(frame[at:])))
	at += 2 + max(client, 0)
	if req.IsFlexible() {
		at++
	}
	if err := req.ReadFrom(frame[at:]); err != nil {
		return err
	}
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	token, ends, err := c.gate.judge(string(req.SASLAuthBytes), time.Now())
	c.gate.mu.Lock()
	if err != nil {
		c.gate.refused = append(c.gate.refused, err.Error())
		message := "the token is refused: " + err.Error()
		resp.ErrorCode, resp.ErrorMessage = 58, &message
	} else {
		c.gate.tokens = append(c.gate.tokens, token)
		c.ends = ends
		resp.SessionLifetimeMillis = time.Until(ends).Milliseconds()
	}
	c.gate.mu.Unlock()
	return c.answer(frame, version, resp)
}

// judge checks a token as the cluster would: a presigned request for
// kafka-cluster:Connect, of credentials it knows, for its region, in time.
func (g *iamGate) judge(first string, now time.Time) (token string, ends time.Time, err error) {
	_, rest, ok := strings.Cut(first, "auth=Bearer ")
	token, _, _ = strings.Cut(rest, "\x01")
	if !ok || !strings.HasPrefix(first, "n,") {
		return "", ends, fmt.Errorf("no bearer token")
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", ends, err
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		return "", ends, err
	}
	q := u.Query()
	if want := "kafka." + g.region + ".amazonaws.com"; u.Host != want || q.Get("Action") != "kafka-cluster:Connect" {
		return "", ends, fmt.Errorf("it asks %s for %s, not %s", u.Host, q.Get("Action"), want)
	}
	scope := strings.Split(q.Get("X-Amz-Credential"), "/")
	signed, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	life, lifeErr := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || lifeErr != nil || len(scope) != 5 || life > 900 {
		return "", ends, fmt.Errorf("credential, date or life is malformed: %v", q)
	}
	g.mu.Lock()
	key, known := g.keys[scope[0]]
	g.mu.Unlock()
	ends = signed.Add(time.Duration(life) * time.Second)
	if key.expires.Before(ends) {
		ends = key.expires
	}
	switch {
	case !known || q.Get("X-Amz-Security-Token") != key.session:
		return "", ends, fmt.Errorf("unknown credentials %s", scope[0])
	case scope[1] != signed.Format("20060102") || scope[2] != g.region || scope[3] != "kafka-cluster" || scope[4] != "aws4_request":
		return "", ends, fmt.Errorf("wrong scope %v", scope)
	case !now.Before(ends):
		return "", ends, fmt.Errorf("expired at %v", ends)
	case signature(u, key.secret, scope, signed) != q.Get("X-Amz-Signature"):
		return "", ends, fmt.Errorf("the signature does not match")
	}
	return token, ends, nil
}

// signature computes the signature of a presigned GET as Signature Version 4
// describes it. The agent is added to the address after signing.
func signature(u *url.URL, secret string, scope []string, signed time.Time) string {
	q := u.Query()
	q.Del("X-Amz-Signature")
	q.Del("User-Agent")
	empty := sha256.Sum256(nil)
	canonical := strings.Join([]string{
		"GET", "/", strings.ReplaceAll(q.Encode(), "+", "%20"), "host:" + u.Host + "\n", "host", hex.EncodeToString(empty[:]),
	}, "\n")
	hash := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{
		"AWS4-HMAC-SHA256", signed.Format("20060102T150405Z"), strings.Join(scope[1:], "/"), hex.EncodeToString(hash[:]),
	}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(append([]string{}, scope[1:]...), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}
