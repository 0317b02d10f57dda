// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// issued is a certificate with its key and the one that signed it.
type issued struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	parent *issued
}

// newCA returns a self-signed authority.
func newCA(t testing.TB, name string) *issued {
	t.Helper()
	return sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// user returns a client certificate that the authority has signed.
func (i *issued) user(t testing.TB, name string, groups ...string) *issued {
	t.Helper()
	return sign(t, i, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// sign fills in a template and signs it with the key of the parent or its own.
func sign(t testing.TB, parent *issued, c *x509.Certificate) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60)); err != nil {
		t.Fatal(err)
	}
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(24*time.Hour)
	}
	i := &issued{key: key, parent: parent}
	signer, signerKey := c, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, signer, key.Public(), signerKey)
	if err != nil {
		t.Fatal(err)
	}
	if i.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *issued) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
}

// presented returns a request on a connection with these certificates.
func presented(chain ...*issued) *http.Request {
	r := bearer("")
	r.Header.Del("Authorization")
	r.TLS = &tls.ConnectionState{}
	for _, i := range chain {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, i.cert)
	}
	return r
}

func withToken(r *http.Request, token string) *http.Request {
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func TestCertificate_identity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "clients")
		a, _ := newTestCluster(t, &origin{pem: newCA(t, "another").pem() + ca.pem()}, nil)
		ann := ca.user(t, "ann", "dev", "ops")
		id, err := a.Authenticate(t.Context(), presented(ann))
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256(ann.cert.Raw)
		if id.Username != "ann" || id.UID != "" ||
			!slices.Equal(id.Groups, []string{"dev", "ops", "system:authenticated"}) ||
			id.Method != MethodCertificate ||
			!id.Expires.Equal(ann.cert.NotAfter) || len(id.Extra) != 1 ||
			!slices.Equal(id.Extra["authentication.kubernetes.io/credential-id"],
				[]string{"X509SHA256=" + hex.EncodeToString(hash[:])}) {
			t.Errorf("%+v", id)
		}
		again, err := a.Authenticate(t.Context(), presented(ann))
		if err != nil || again != id {
			t.Errorf("not from the cache: %p and %p, %v", id, again, err)
		}
	})
}

func TestCertificate_chains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, stranger := newCA(t, "clients"), newCA(t, "clients")
		now := time.Now()
		soon := now.Add(time.Hour)
		middle := sign(t, ca, &x509.Certificate{
			Subject: pkix.Name{CommonName: "middle"}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage:  x509.KeyUsageCertSign,
			NotBefore: now.Add(-time.Hour), NotAfter: soon,
		})
		uid := func(values ...any) *issued {
			subject := pkix.Name{CommonName: "ann"}
			for _, v := range values {
				subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{
					Type:  asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2},
					Value: v,
				})
			}
			return sign(t, ca, &x509.Certificate{
				Subject:     subject,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			})
		}
		leaf := middle.user(t, "ann")
		long := []*issued{leaf}
		for range maxChain {
			long = append(long, middle)
		}
		a, _ := newTestCluster(t, &origin{pem: ca.pem()}, nil)
		for name, test := range map[string]struct {
			chain []*issued
			want  int
		}{
			"intermediate":         {[]*issued{leaf, middle}, 200},
			"intermediate missing": {[]*issued{leaf}, 401},
			"too long":             {long, 401},
			"another authority":    {[]*issued{stranger.user(t, "ann", "system:masters")}, 401},
			"with its authority":   {[]*issued{stranger.user(t, "ann"), stranger}, 401},
			"valid one second":     {[]*issued{stranger.user(t, "ann"), ca.user(t, "ann")}, 401},
			"no name":              {[]*issued{ca.user(t, "", "system:masters")}, 401},
			"anonymous":            {[]*issued{ca.user(t, "system:anonymous")}, 401},
			"unauthenticated":      {[]*issued{ca.user(t, "x", "system:unauthenticated")}, 401},
			"UID":                  {[]*issued{uid("17")}, 200},
			"two UIDs":             {[]*issued{uid("17", "18")}, 401},
			"empty UID":            {[]*issued{uid("")}, 401},
			"for servers": {[]*issued{sign(t, ca, &x509.Certificate{
				Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})}, 401},
			"expired": {[]*issued{sign(t, ca, &x509.Certificate{
				Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
				NotBefore: now.Add(-time.Hour), NotAfter: now.Add(-time.Second),
			})}, 401},
			"not yet valid": {[]*issued{sign(t, ca, &x509.Certificate{
				Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
				NotBefore: soon, NotAfter: soon.Add(time.Hour),
			})}, 401},
			"none": {nil, 401},
		} {
			for range 2 { // the second time perhaps from the cache
				id, err := a.Authenticate(t.Context(), presented(test.chain...))
				if code(err) != test.want {
					t.Errorf("%s: %v, want %d", name, err, test.want)
				}
				if name == "UID" && id.UID != "17" {
					t.Errorf("UID %q", id.UID)
				}
				if name == "intermediate" && !id.Expires.Equal(soon) {
					t.Errorf("expires %s, want that of the intermediate, %s", id.Expires, soon)
				}
			}
		}
		time.Sleep(time.Hour + time.Second)
		if got := authenticated(a, presented(leaf, middle)); got != 401 {
			t.Errorf("after the intermediate has expired: %d", got)
		}
	})
}

func TestCertificate_precedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, stranger := newCA(t, "clients"), newCA(t, "others")
		o := &origin{pem: ca.pem(), users: users("good")}
		a, _ := newTestCluster(t, o, nil)
		for name, test := range map[string]struct {
			r    *http.Request
			want string
		}{
			"both valid":       {withToken(presented(ca.user(t, "bob")), "good"), "bob"},
			"certificate only": {withToken(presented(ca.user(t, "bob")), "bad"), "bob"},
			"token only":       {withToken(presented(stranger.user(t, "bob")), "good"), "ann"},
			"none":             {withToken(presented(stranger.user(t, "bob")), "bad"), ""},
		} {
			id, err := a.Authenticate(t.Context(), test.r)
			if test.want == "" && code(err) != 401 || test.want != "" && (err != nil || id.Username != test.want) {
				t.Errorf("%s: %+v, %v", name, id, err)
			}
		}
		o.set(func() { o.config = hang })
		b, _ := newTestCluster(t, o, nil)
		if id, err := b.Authenticate(t.Context(), withToken(presented(ca.user(t, "bob")), "good")); err != nil ||
			id.Username != "ann" {
			t.Errorf("without the authority: %+v, %v", id, err)
		}
		if got := authenticated(b, withToken(presented(ca.user(t, "bob")), "bad")); got != 503 {
			t.Errorf("without the authority and with a bad token: %d, want 503", got)
		}
	})
}

// TestCertificate_rotation replaces the authority while callers use it.
func TestCertificate_rotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newCA(t, "clients"), newCA(t, "clients")
		o := &origin{pem: before.pem()}
		a, _ := newTestCluster(t, o, nil)
		ann, bob := before.user(t, "ann"), after.user(t, "bob")
		id, err := a.Authenticate(t.Context(), presented(ann))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
		o.set(func() {
			o.pem = after.pem()
			o.config = func(http.ResponseWriter, *http.Request) bool {
				time.Sleep(500 * time.Millisecond)
				return false
			}
		})
		rotated := time.Now()
		for authenticated(a, presented(ann)) == 200 {
			// The authority may be replaced between two requests.
			if authenticated(a, presented(bob)) == 200 && authenticated(a, presented(ann)) == 200 {
				t.Fatal("both authorities are accepted")
			}
			time.Sleep(time.Second / 2)
		}
		if took := time.Since(rotated); took > time.Minute || took < 500*time.Millisecond {
			t.Errorf("followed after %s", took)
		}
		if got := authenticated(a, presented(bob)); got != 200 {
			t.Errorf("new authority: %d", got)
		}
		if err := a.Reauthenticate(t.Context(), presented(ann), id); code(err) != 401 {
			t.Errorf("watch with a certificate of the old authority: %v", err)
		}

		// While the ConfigMap is written again, the authority stays.
		o.set(func() { o.config = status(404, "") })
		time.Sleep(time.Minute)
		if got := authenticated(a, presented(bob)); got != 200 {
			t.Errorf("without the ConfigMap: %d", got)
		}
		o.set(func() { o.config = nil })
		time.Sleep(2 * time.Second)
		authenticated(a, presented(bob))
		time.Sleep(time.Second)

		// After a pause the old bundle must not be used once more.
		o.set(func() { o.pem = before.pem() })
		time.Sleep(10 * time.Minute)
		if got := authenticated(a, presented(bob)); got != 401 {
			t.Errorf("after a pause: %d", got)
		}
	})
}

func TestCertificate_readsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "clients")
		o := &origin{pem: ca.pem()}
		a, _ := newTestCluster(t, o, nil)
		ann := ca.user(t, "ann")
		first, err := a.Authenticate(t.Context(), presented(ann))
		if err != nil {
			t.Fatal(err)
		}
		for range 600 {
			if id, err := a.Authenticate(t.Context(), presented(ann)); err != nil || id != first {
				t.Fatalf("%v, %v, want the cached identity", id, err)
			}
			time.Sleep(time.Second)
		}
		if n := o.reads.Load(); n < 10 || n > 21 {
			t.Errorf("%d reads in ten minutes", n)
		}
		time.Sleep(time.Hour)
		if n := o.reads.Load(); n > 21 {
			t.Errorf("%d reads, also without a caller", n)
		}
	})
}

func TestCertificate_originDown(t *testing.T) {
	for name, test := range map[string]struct {
		fault   func(http.ResponseWriter, *http.Request) bool
		message string
		log     string
	}{
		"hung": {hang, authorityUnavailable, "deadline exceeded"},
		"refused": {
			func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Test-Fault", "1")
				return true
			}, authorityUnavailable, "connection refused",
		},
		"500": {status(500, "x"), authorityUnavailable, "status 500"},
		"403": {
			status(403, "x"), authorityForbidden,
			"the right get configmaps/extension-apiserver-authentication in kube-system is missing",
		},
		"garbage":    {status(200, "x"), authorityUnavailable, "not JSON"},
		"other kind": {status(200, `{"kind":"Status"}`), authorityUnavailable, "not a ConfigMap"},
		"no PEM": {
			status(200, `{"kind":"ConfigMap","data":{"client-ca-file":"x"}}`), authorityUnavailable, "no certificate",
		},
		"too large": {status(200, strings.Repeat(" ", maxResponse+1)), authorityUnavailable, "too large"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://other.example", http.StatusTemporaryRedirect)
			return true
		}, authorityUnavailable, "307"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, "clients")
				ann := ca.user(t, "ann")
				o := &origin{pem: ca.pem(), config: test.fault}
				a, log := newTestCluster(t, o, nil)
				begin := time.Now()
				_, err := a.Authenticate(t.Context(), presented(ann))
				checkStatus(t, err, 503)
				if err.Error() != test.message || !strings.Contains(log.String(), test.log) ||
					time.Since(begin) > 10*time.Second {
					t.Errorf("%v after %s, log %.500s", err, time.Since(begin), log)
				}
				time.Sleep(2 * time.Second)
				o.set(func() { o.config = nil })
				id, err := a.Authenticate(t.Context(), presented(ann))
				if err != nil {
					t.Fatalf("after the trouble: %v", err)
				}

				o.set(func() { o.config = test.fault })
				last := time.Now()
				for time.Since(last) < 59*time.Minute {
					begin := time.Now()
					if err := a.Reauthenticate(t.Context(), presented(ann), id); err != nil {
						t.Fatalf("%s after the origin went down: %v", time.Since(last), err)
					}
					if took := time.Since(begin); took > 0 {
						t.Fatalf("waited %s for an origin that is known to be down", took)
					}
					time.Sleep(20 * time.Second)
				}
				time.Sleep(time.Minute + time.Second)
				checkStatus(t, a.Reauthenticate(t.Context(), presented(ann), id), 503)
				_, err = a.Authenticate(t.Context(), presented(ann))
				checkStatus(t, err, 503)
			})
		})
	}
}

func TestCertificate_clusterWithoutAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := newCA(t, "clients").user(t, "ann")
		for name, config := range map[string]func(http.ResponseWriter, *http.Request) bool{
			"no key":       status(200, `{"kind":"ConfigMap","data":{"requestheader-client-ca-file":"x"}}`),
			"no ConfigMap": status(404, ""),
		} {
			a, _ := newTestCluster(t, &origin{users: users("good"), config: config}, nil)
			if got := authenticated(a, presented(ann)); got != 401 {
				t.Errorf("%s: %d", name, got)
			}
			if got := authenticated(a, withToken(presented(ann), "good")); got != 200 {
				t.Errorf("%s, with a token: %d", name, got)
			}
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	ca := newCA(b, "clients")
	o := &origin{pem: ca.pem(), users: users("good")}
	a, _ := newTestCluster(b, o, &Options{CacheTTL: time.Hour})
	for name, r := range map[string]*http.Request{
		"certificate": presented(ca.user(b, "ann")),
		"token":       bearer("good"),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := authenticated(a, r); got != 200 {
					b.Fatal(got)
				}
			}
		})
	}
	ann := presented(ca.user(b, "ann"))
	b.Run("verification", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.certificate(b.Context(), ann, true); err != nil {
				b.Fatal(err)
			}
		}
	})
}
