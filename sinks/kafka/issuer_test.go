//go:build cgo

package kafka

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// issuer stands for every service that the SDK gets credentials from: the SSO
// portal, STS, a container's agent, instance metadata. It checks what a caller
// has to show.
type issuer struct {
	gate   *iamGate
	server *httptest.Server

	mu   sync.Mutex
	n    int
	life time.Duration
	fail bool
	// shown is what callers have to prove themselves with now.
	shown string
	asked time.Time // last
}

const (
	issuerRole    = "exporter"
	issuerAccount = "111122223333"
	metadataToken = "metadata-session"
)

func newIssuer(t *testing.T, gate *iamGate) *issuer {
	i := &issuer{gate: gate, life: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /federation/credentials", i.portal)
	mux.HandleFunc("POST /{$}", i.sts)
	mux.HandleFunc("GET /container/role", i.container)
	mux.HandleFunc("PUT /latest/api/token", i.metadataSession)
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{$}", i.metadataRole)
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/"+issuerRole, i.metadata)
	i.server = httptest.NewServer(mux)
	t.Cleanup(i.server.Close)
	return i
}

// issued are credentials.
type issued struct {
	id, secret, session string
	ends                time.Time
}

// rotate makes other credentials, which alone the gate lets in from now on.
func (i *issuer) rotate(life time.Duration) issued {
	i.mu.Lock()
	i.n++
	i.life = life
	i.mu.Unlock()
	c := i.credentials()
	i.gate.mu.Lock()
	defer i.gate.mu.Unlock()
	clear(i.gate.keys)
	i.gate.keys[c.id] = gateKey{c.secret, c.session, c.ends}
	return c
}

// credentials are those of now.
func (i *issuer) credentials() issued {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.n
	i.gate.mu.Lock()
	defer i.gate.mu.Unlock()
	id := fmt.Sprintf("ASIA%d", n)
	ends := time.Now().Add(i.life).Truncate(time.Second)
	if k, ok := i.gate.keys[id]; ok {
		ends = k.expires
	}
	return issued{id, fmt.Sprintf("hush/%d+", n), fmt.Sprintf("hush-session/%d=", n), ends}
}

// admit reports whether a caller shows what it has to; otherwise it answers.
func (i *issuer) admit(w http.ResponseWriter, shown string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = time.Now()
	switch {
	case i.fail:
		http.Error(w, `{"code":"AccessDenied","message":"the role was taken away"}`, http.StatusForbidden)
	case i.shown != "" && shown != i.shown:
		http.Error(w, `{"code":"AccessDenied","message":"who are you"}`, http.StatusForbidden)
	default:
		return true
	}
	return false
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// portal is GetRoleCredentials of IAM Identity Center.
func (i *issuer) portal(w http.ResponseWriter, r *http.Request) {
	if !i.admit(w, r.Header.Get("X-Amz-Sso_bearer_token")) {
		return
	}
	if q := r.URL.Query(); q.Get("role_name") != issuerRole || q.Get("account_id") != issuerAccount {
		http.Error(w, "no such role", http.StatusNotFound)
		return
	}
	c := i.credentials()
	answerJSON(w, map[string]any{"roleCredentials": map[string]any{
		"accessKeyId": c.id, "secretAccessKey": c.secret, "sessionToken": c.session, "expiration": c.ends.UnixMilli(),
	}})
}

// sts is AssumeRoleWithWebIdentity.
func (i *issuer) sts(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || r.Form.Get("Action") != "AssumeRoleWithWebIdentity" || !strings.HasSuffix(r.Form.Get("RoleArn"), issuerRole) {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	refused := httptest.NewRecorder()
	if !i.admit(refused, r.Form.Get("WebIdentityToken")) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>the role was taken away</Message></Error></ErrorResponse>`)
		return
	}
	c := i.credentials()
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>
</Credentials><AssumedRoleUser><Arn>arn:aws:sts::%s:assumed-role/%s/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
		c.id, c.secret, c.session, c.ends.UTC().Format(time.RFC3339), issuerAccount, issuerRole)
}

// container is the agent of ECS and of EKS Pod Identity.
func (i *issuer) container(w http.ResponseWriter, r *http.Request) {
	if !i.admit(w, r.Header.Get("Authorization")) {
		return
	}
	c := i.credentials()
	answerJSON(w, map[string]any{
		"AccessKeyId": c.id, "SecretAccessKey": c.secret, "Token": c.session, "Expiration": c.ends.UTC().Format(time.RFC3339), "AccountId": issuerAccount,
	})
}

// metadataSession opens a session of IMDSv2.
func (i *issuer) metadataSession(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
	fmt.Fprint(w, metadataToken)
}

// session refuses calls of IMDSv1.
func (i *issuer) session(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("X-Aws-Ec2-Metadata-Token") == metadataToken {
		return true
	}
	http.Error(w, "IMDSv2 only", http.StatusUnauthorized)
	return false
}

func (i *issuer) metadataRole(w http.ResponseWriter, r *http.Request) {
	if i.session(w, r) {
		fmt.Fprint(w, issuerRole)
	}
}

func (i *issuer) metadata(w http.ResponseWriter, r *http.Request) {
	if !i.session(w, r) || !i.admit(w, "") {
		return
	}
	c := i.credentials()
	answerJSON(w, map[string]any{
		"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": time.Now().UTC().Format(time.RFC3339),
		"AccessKeyId": c.id, "SecretAccessKey": c.secret, "Token": c.session, "Expiration": c.ends.UTC().Format(time.RFC3339),
	})
}
