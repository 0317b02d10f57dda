// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/watershed-project/watershed/internal/expect"
)

var (
	firstKey  = newRSA()
	secondKey = newRSA()
	curveKey  = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
)

func newRSA() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) }

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// testIssuer is an OIDC issuer.
type testIssuer struct {
	*httptest.Server
	caFile string
	reads  atomic.Int32 // of the keys

	mu        sync.Mutex
	keys      []jose.JSONWebKey
	discovery map[string]any
	fault     func(http.ResponseWriter, *http.Request) bool
}

func newTestIssuer(t *testing.T) *testIssuer {
	t.Helper()
	i := &testIssuer{keys: []jose.JSONWebKey{
		{Key: []byte("a symmetric key of some length.."), KeyID: "symmetric", Algorithm: "HS256"},
		{Key: &secondKey.PublicKey, KeyID: "encryption", Use: "enc"},
		{Key: &firstKey.PublicKey, KeyID: "first", Algorithm: "RS256", Use: "sig"},
		{Key: &curveKey.PublicKey, KeyID: "curve"},
	}}
	i.Server = httptest.NewUnstartedServer(i)
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	i.StartTLS()
	t.Cleanup(i.Close)
	i.discovery = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
	i.caFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(i.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// ServeHTTP implements [http.Handler].
func (i *testIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	keys, discovery, fault := i.keys, i.discovery, i.fault
	i.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		respond(w, http.StatusOK, discovery)
	case "/keys":
		i.reads.Add(1)
		respond(w, http.StatusOK, map[string]any{
			"keys": append([]any{map[string]string{"kty": "unheard of"}}, anys(keys)...),
		})
	default:
		http.NotFound(w, r)
	}
}

func anys[V any](vs []V) (all []any) {
	for _, v := range vs {
		all = append(all, v)
	}
	return all
}

func (i *testIssuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *testIssuer) options() OIDCOptions {
	return OIDCOptions{
		Issuer: i.URL, Audience: "watershed", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "oidc:",
		CAFile: i.caFile, Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t *testing.T, opts OIDCOptions) *OIDC {
	t.Helper()
	o, err := NewOIDC(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// claims returns valid claims with changes; nil removes one.
func (i *testIssuer) claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": i.URL, "aud": "watershed", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(),
		"groups": []string{"dev", "ops"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// signed returns a token with these claims.
func signed(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if kid != "" {
		opts = opts.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(must(json.Marshal(claims)))
	if err != nil {
		t.Fatal(err)
	}
	return must(jws.CompactSerialize())
}

func (i *testIssuer) token(t *testing.T, changes map[string]any) string {
	t.Helper()
	return signed(t, jose.RS256, firstKey, "first", i.claims(changes))
}

func TestOIDC_identity(t *testing.T) {
	i := newTestIssuer(t)
	o := open(t, i.options())
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header = webSocket(bearerProtocol+base64.RawURLEncoding.EncodeToString([]byte(i.token(t, nil))),
		"base64.binary.k8s.io")
	for _, r := range []*http.Request{bearer(i.token(t, nil)), r} {
		id, err := o.Authenticate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if id.Username != "oidc:ann" ||
			!slices.Equal(id.Groups, []string{"oidc:dev", "oidc:ops", "system:authenticated"}) || id.UID != "" ||
			id.Extra != nil ||
			id.Method != MethodOIDC || id.Expires.Before(time.Now().Add(59*time.Minute)) ||
			id.Expires.After(time.Now().Add(time.Hour)) {
			t.Errorf("%+v", id)
		}
		if err := o.Reauthenticate(t.Context(), r, id); err != nil {
			t.Error(err)
		}
		expired := *id
		expired.Expires = time.Now()
		other := *id
		other.Username = "oidc:bob"
		for _, id := range []*Identity{&expired, &other} {
			if err := o.Reauthenticate(t.Context(), r, id); code(err) != 401 {
				t.Errorf("%+v: %v", id, err)
			}
		}
	}
}

func TestOIDC_claims(t *testing.T) {
	i := newTestIssuer(t)
	byEmail := i.options()
	byEmail.UsernameClaim = "email"
	bySplit := i.options()
	bySplit.UsernamePrefix, bySplit.GroupsPrefix = "sys", "syst"
	withoutGroups := i.options()
	withoutGroups.GroupsClaim, withoutGroups.GroupsPrefix = "", ""
	plain, email, split, groupless := open(t, i.options()), open(t, byEmail), open(t, bySplit), open(t, withoutGroups)
	now := time.Now()
	type changes = map[string]any
	for name, test := range map[string]struct {
		o       *OIDC
		changes changes
		want    string // the name, "" if refused
	}{
		"valid":                  {plain, nil, "oidc:ann"},
		"another issuer":         {plain, changes{"iss": "https://issuer.example"}, ""},
		"issuer with a slash":    {plain, changes{"iss": i.URL + "/"}, ""},
		"no issuer":              {plain, changes{"iss": nil}, ""},
		"another audience":       {plain, changes{"aud": "kubernetes"}, ""},
		"several audiences":      {plain, changes{"aud": []string{"kubernetes", "watershed"}}, "oidc:ann"},
		"no audience":            {plain, changes{"aud": nil}, ""},
		"expired":                {plain, changes{"exp": now.Add(-time.Second).Unix()}, ""},
		"no expiry":              {plain, changes{"exp": nil}, ""},
		"not yet valid":          {plain, changes{"nbf": now.Add(10 * time.Minute).Unix()}, ""},
		"valid since now":        {plain, changes{"nbf": now.Unix()}, "oidc:ann"},
		"no name":                {plain, changes{"sub": nil}, ""},
		"empty name":             {plain, changes{"sub": ""}, ""},
		"name is a number":       {plain, changes{"sub": 17}, ""},
		"control character":      {plain, changes{"sub": "ann\nlevel=INFO"}, ""},
		"reserved name":          {plain, changes{"sub": "system:admin"}, ""},
		"name of an account":     {plain, changes{"sub": "watershed:home:ci:bot"}, ""},
		"reserved group":         {plain, changes{"groups": []string{"dev", "system:masters"}}, ""},
		"one group":              {plain, changes{"groups": "dev"}, "oidc:ann"},
		"one reserved group":     {plain, changes{"groups": "system:masters"}, ""},
		"empty group":            {plain, changes{"groups": []string{""}}, ""},
		"groups are a number":    {plain, changes{"groups": 17}, ""},
		"no groups":              {plain, changes{"groups": nil}, "oidc:ann"},
		"name after the prefix":  {split, changes{"sub": "tem:admin", "groups": nil}, ""},
		"group after the prefix": {split, changes{"groups": []string{"em:masters"}}, ""},
		"neither":                {split, changes{"groups": []string{"masters"}}, "sysann"},
		"groups not configured":  {groupless, changes{"groups": "system:masters"}, "oidc:ann"},
		"email":                  {email, changes{"email": "a@example.com"}, "oidc:a@example.com"},
		"verified email": {
			email, changes{"email": "a@example.com", "email_verified": true}, "oidc:a@example.com",
		},
		"email not verified": {email, changes{"email": "a@example.com", "email_verified": false}, ""},
		"verified is a text": {email, changes{"email": "a@example.com", "email_verified": "true"}, ""},
		"no email":           {email, nil, ""},
		"distributed groups": {
			plain, changes{
				"groups":         nil,
				"_claim_names":   changes{"groups": "x"},
				"_claim_sources": changes{"x": changes{"endpoint": "https://192.0.2.1"}},
			}, "oidc:ann",
		},
		"reserved, with capitals": {plain, changes{"sub": "SYSTEM:admin"}, "oidc:SYSTEM:admin"},
	} {
		id, err := test.o.Authenticate(t.Context(), bearer(i.token(t, test.changes)))
		if test.want == "" {
			if code(err) != 401 || err.Error() != "Unauthorized" {
				t.Errorf("%s: %+v, %v, want 401", name, id, err)
			}
		} else if err != nil || id.Username != test.want {
			t.Errorf("%s: %+v, %v, want %s", name, id, err, test.want)
		} else if test.o == groupless && len(id.Groups) != 1 {
			t.Errorf("%s: groups %q", name, id.Groups)
		}
	}
}

func TestOIDC_signatures(t *testing.T) {
	i := newTestIssuer(t)
	o := open(t, i.options())
	both := i.options()
	both.SupportedAlgs = []string{"RS256", "ES256"}
	curves := open(t, both)
	good := i.token(t, nil)
	parts := strings.Split(good, ".")
	public := pem.EncodeToMemory(&pem.Block{
		Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(&firstKey.PublicKey)),
	})
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	tampered := base64.RawURLEncoding.EncodeToString(must(json.Marshal(i.claims(map[string]any{"sub": "root"}))))
	embedded := (&jose.SignerOptions{EmbedJWK: true}).WithHeader("kid", "first")
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: secondKey}, embedded))
	for name, test := range map[string]struct {
		o     *OIDC
		token string
		want  int
	}{
		"valid":               {o, good, 200},
		"no key ID":           {o, signed(t, jose.RS256, firstKey, "", i.claims(nil)), 200},
		"unknown key ID":      {o, signed(t, jose.RS256, firstKey, "other", i.claims(nil)), 401},
		"another key":         {o, signed(t, jose.RS256, secondKey, "first", i.claims(nil)), 401},
		"key for encryption":  {o, signed(t, jose.RS256, secondKey, "encryption", i.claims(nil)), 401},
		"key in the header":   {o, must(must(signer.Sign(must(json.Marshal(i.claims(nil))))).CompactSerialize()), 401},
		"none":                {o, none + "." + parts[1] + ".", 401},
		"none with signature": {o, none + "." + parts[1] + "." + parts[2], 401},
		"HMAC, public key":    {o, signed(t, jose.HS256, public, "first", i.claims(nil)), 401},
		"HMAC, published key": {
			o, signed(t, jose.HS256, []byte("a symmetric key of some length.."), "symmetric", i.claims(nil)), 401,
		},
		"other algorithm":     {o, signed(t, jose.RS512, firstKey, "first", i.claims(nil)), 401},
		"algorithm of others": {o, signed(t, jose.ES256, curveKey, "curve", i.claims(nil)), 401},
		"curve":               {curves, signed(t, jose.ES256, curveKey, "curve", i.claims(nil)), 200},
		"tampered":            {o, parts[0] + "." + tampered + "." + parts[2], 401},
		"no signature":        {o, parts[0] + "." + parts[1] + ".", 401},
		"two parts":           {o, parts[0] + "." + parts[1], 401},
		"five parts":          {o, good + ".x.y", 401},
		"opaque":              {o, "opaque", 401},
		"empty":               {o, "", 401},
	} {
		if _, err := test.o.Authenticate(t.Context(), bearer(test.token)); code(err) != test.want {
			t.Errorf("%s: %v, want %d", name, err, test.want)
		}
	}
	for n := range 100 {
		_, err := o.Authenticate(t.Context(),
			from(fmt.Sprintf("192.0.2.%d:1", n),
				bearer(signed(t, jose.RS256, secondKey, fmt.Sprint(n), i.claims(nil)))))
		if code(err) != 401 {
			t.Fatal(err)
		}
	}
	if n := i.reads.Load(); n > 2 {
		t.Errorf("%d reads of the keys for two authenticators within %s", n, keysPause)
	}
}

// age makes the keys look older than they are.
func age(o *OIDC, by time.Duration) {
	d := o.keys.document
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = d.at.Add(-by)
}

// forget makes the last failure older than the pause after it.
func forget(o *OIDC) {
	d := o.keys.document
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = d.failed.Add(-documentPause)
}

func TestOIDC_keysChange(t *testing.T) {
	i := newTestIssuer(t)
	o := open(t, i.options())
	check := func(token string, want int) {
		t.Helper()
		if _, err := o.Authenticate(t.Context(), bearer(token)); code(err) != want {
			t.Errorf("%v, want %d", err, want)
		}
	}
	check(i.token(t, nil), 200)
	i.set(func() { i.keys = []jose.JSONWebKey{{Key: &secondKey.PublicKey, KeyID: "second"}} })
	second := func(jti int) string {
		return signed(t, jose.RS256, secondKey, "second", i.claims(map[string]any{"jti": fmt.Sprint(jti)}))
	}
	check(second(1), 401)
	age(o, keysPause)
	check(second(2), 200)
	check(i.token(t, map[string]any{"jti": "withdrawn"}), 401)

	// Known keys are used while the issuer is down, up to keysGrace.
	i.set(func() { i.fault = status(500, "") })
	age(o, keysPause)
	check(second(3), 200)
	age(o, keysRefresh)
	check(second(4), 200)
	check(signed(t, jose.RS256, firstKey, "third", i.claims(nil)), 503)
	check(signed(t, jose.RS256, firstKey, "second", i.claims(nil)), 401)
	age(o, keysGrace)
	check(second(5), 503)
}

func TestOIDC_issuerDown(t *testing.T) {
	i := newTestIssuer(t)
	stopped := httptest.NewTLSServer(http.NotFoundHandler())
	stopped.Close()
	for name, test := range map[string]struct {
		change func()
		log    string
	}{
		"hung": {func() {
			i.fault = func(w http.ResponseWriter, r *http.Request) bool {
				hang(w, r)
				panic(http.ErrAbortHandler) // an empty response could arrive first
			}
		}, "deadline exceeded"},
		"500":      {func() { i.fault = status(500, "") }, "discovery: status 500"},
		"redirect": {func() { i.fault = status(302, "") }, "discovery: status 302"},
		"not JSON": {func() { i.fault = status(200, "x") }, "discovery: invalid character"},
		"too large": {
			func() { i.fault = status(200, strings.Repeat(" ", maxResponse+1)) },
			"discovery: the response is too large",
		},
		"another issuer": {
			func() {
				i.discovery = map[string]any{"issuer": "https://x", "jwks_uri": i.URL + "/keys"}
			}, "the issuer is",
		},
		"no TLS": {func() {
			i.discovery = map[string]any{"issuer": i.URL, "jwks_uri": "http://" + i.Listener.Addr().String() + "/keys"}
		}, "does not begin with https"},
		"keys refused": {
			func() {
				i.discovery = map[string]any{"issuer": i.URL, "jwks_uri": stopped.URL + "/keys"}
			}, "connection refused",
		},
		"keys missing": {
			func() { i.discovery = map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/none"} }, "keys: status 404",
		},
		"no keys": {func() { i.keys = i.keys[:2] }, "none can be used"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, discovery := i.keys, i.discovery
			i.set(test.change)
			opts := i.options()
			log := &lockedBuffer{}
			opts.Logger = slog.New(slog.NewTextHandler(log, nil))
			o := open(t, opts)
			o.keys.document.timeout = time.Second / 2
			_, err := o.Authenticate(t.Context(), bearer(i.token(t, nil)))
			checkStatus(t, err, 503, i.URL, "127.0.0.1")
			if err == nil || err.Error() != issuerUnavailable || !strings.Contains(log.String(), test.log) {
				t.Errorf("%v, log %s", err, log)
			}
			i.set(func() { i.keys, i.discovery, i.fault = keys, discovery, nil })
			forget(o)
			if _, err := o.Authenticate(t.Context(), bearer(i.token(t, nil))); err != nil {
				t.Errorf("after the trouble: %v", err)
			}
		})
	}
	t.Run("untrusted", func(t *testing.T) {
		opts := i.options()
		opts.CAFile = ""
		_, err := open(t, opts).Authenticate(t.Context(), bearer(i.token(t, nil)))
		checkStatus(t, err, 503, i.URL)
	})
	t.Run("context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := must(NewOIDC(ctx, i.options()))
		cancel()
		expect.Soon(t, "both contexts end", func() bool {
			return o.tokens.ctx.Err() != nil && o.keys.document.ctx.Err() != nil
		})
		_, err := o.Authenticate(t.Context(), bearer(i.token(t, nil)))
		checkStatus(t, err, 503)
		o.Close()
	})
}

func TestNewOIDC_refuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := OIDCOptions{
		Issuer:         "https://issuer.example/realm",
		Audience:       "watershed",
		UsernamePrefix: "oidc:",
		GroupsClaim:    "groups",
		GroupsPrefix:   "oidc:",
	}
	open(t, good)
	for want, change := range map[string]func(*OIDCOptions){
		"not a URL with https":               func(o *OIDCOptions) { o.Issuer = "http://issuer.example" },
		"a host and a path":                  func(o *OIDCOptions) { o.Issuer = "https://issuer.example?x=y" },
		"issuer \"\"":                        func(o *OIDCOptions) { o.Issuer = "" },
		"no audience":                        func(o *OIDCOptions) { o.Audience = "" },
		"username prefix: it is mandatory":   func(o *OIDCOptions) { o.UsernamePrefix = "" },
		"username prefix: it is mandatory, ": func(o *OIDCOptions) { o.UsernamePrefix = "-" },
		"groups prefix: it is mandatory":     func(o *OIDCOptions) { o.GroupsPrefix = "" },
		"groups prefix: it is mandatory, ":   func(o *OIDCOptions) { o.GroupsPrefix = "-" },
		"groups prefix \"system:\"":          func(o *OIDCOptions) { o.GroupsPrefix = "system:" },
		"username prefix \"system:x:\"":      func(o *OIDCOptions) { o.UsernamePrefix = "system:x:" },
		"username prefix \"watershed:\"":     func(o *OIDCOptions) { o.UsernamePrefix = "watershed:" },
		"algorithm \"HS256\"":                func(o *OIDCOptions) { o.SupportedAlgs = []string{"RS256", "HS256"} },
		"algorithm \"none\"":                 func(o *OIDCOptions) { o.SupportedAlgs = []string{"none"} },
		"no such file":                       func(o *OIDCOptions) { o.CAFile = "absent" },
		"contains no certificate":            func(o *OIDCOptions) { o.CAFile = empty },
	} {
		opts := good
		change(&opts)
		if _, err := NewOIDC(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
