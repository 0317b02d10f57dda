// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

// real is a cluster, and a server that authenticates its callers at it.
type real struct {
	*kubetest.Cluster
	admin   *kubernetes.Clientset
	ca      *issued
	caFile  string
	cluster *Cluster // with the rights of user delegate
	server  *httptest.Server
}

// TestReal compares the identities with those that a real API server reports for the same
// credentials.
func TestReal(t *testing.T) {
	ca := newCA(t, "clients")
	caFile := filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(caFile, []byte(ca.pem()), 0o600); err != nil {
		t.Fatal(err)
	}
	k := kubetest.Start(t, &kubetest.Options{
		Users: []kubetest.User{
			{Name: "delegate"},
			{Name: "powerless"},
			{Name: "ann", Groups: []string{"dev", "ops"}},
		},
		APIServerArgs: []string{"--client-ca-file=" + caFile},
	})
	s := &real{Cluster: k, admin: kubernetes.NewForConfigOrDie(k.Config()), ca: ca, caFile: caFile}
	s.grant(t)
	s.cluster = s.open(t, "delegate")
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, err := s.cluster.Authenticate(r.Context(), r); err == nil {
			respond(w, http.StatusOK, id.UserInfo)
		} else {
			respond(w, code(err), err)
		}
	}))
	s.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.server.StartTLS()
	t.Cleanup(s.server.Close)

	t.Run("identities", s.testIdentities)
	t.Run("refused", s.testRefused)
	t.Run("right is missing", s.testPowerless)
	t.Run("service account is deleted", s.testDeleted)
	t.Run("authority changes", s.testRotation)
	t.Run("API server is down", s.testDown)
}

// grant gives the user delegate the rights that the package needs, and no other.
func (s *real) grant(t *testing.T) {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "delegate"}}
	rule := rbacv1.PolicyRule{
		APIGroups: []string{"authentication.k8s.io"},
		Resources: []string{"tokenreviews"},
		Verbs:     []string{"create"},
	}
	if err := s.Grant(t.Context(), "delegate", "", rule); err != nil {
		t.Fatal(err)
	}
	_, err := s.admin.RbacV1().RoleBindings("kube-system").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "delegate"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *real) open(t *testing.T, user string) *Cluster {
	t.Helper()
	c, err := kube.FromConfig(s.UserConfig(user), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := New(c, &Options{CacheTTL: time.Second, CARefresh: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(a.Close)
	t.Cleanup(c.CloseIdleConnections)
	return a
}

// withoutCredentials returns the configuration for a caller of the API server.
func (s *real) withoutCredentials() *rest.Config {
	c := s.Config()
	c.BearerToken = ""
	return c
}

func (s *real) tokenConfig(token string) *rest.Config {
	c := s.withoutCredentials()
	c.BearerToken = token
	return c
}

func (s *real) certificateConfig(t *testing.T, i *issued) *rest.Config {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	c := s.withoutCredentials()
	c.CertData = []byte(i.pem())
	for p := i.parent; p != nil && p.parent != nil; p = p.parent {
		c.CertData = append(c.CertData, p.pem()...)
	}
	c.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
	return c
}

// token requests a token of a new service account.
func (s *real) token(t *testing.T, account string, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	r, err := s.admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

func (s *real) account(t *testing.T, name string) {
	t.Helper()
	_, err := s.admin.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// ours returns what this package reports for the credentials in cfg.
func (s *real) ours(t *testing.T, cfg *rest.Config) (user authenticationv1.UserInfo, code int) {
	t.Helper()
	own := rest.CopyConfig(cfg)
	own.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&user); err != nil {
			t.Fatal(err)
		}
	}
	return user, resp.StatusCode
}

// theirs returns what the API server reports for them.
func (s *real) theirs(t *testing.T, cfg *rest.Config) (authenticationv1.UserInfo, error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return r.Status.UserInfo, nil
}

func (s *real) testIdentities(t *testing.T) {
	s.account(t, "robot")
	secret, err := s.admin.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "anchor"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := s.admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "robot",
			Containers:         []corev1.Container{{Name: "c", Image: "x"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	middle := sign(t, s.ca, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "middle"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
	numbered := sign(t, s.ca, &x509.Certificate{
		Subject: pkix.Name{
			CommonName: "eve",
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: uidOID, Value: "uid-17"}},
		},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	certificate := s.certificateConfig(t, s.ca.user(t, "carl"))
	certificate.BearerToken = s.UserConfig("ann").BearerToken
	for name, cfg := range map[string]*rest.Config{
		"static token":    s.UserConfig("ann"),
		"administrator":   s.Config(),
		"service account": s.tokenConfig(s.token(t, "robot", nil)),
		"bound to a secret": s.tokenConfig(s.token(t, "robot", &authenticationv1.BoundObjectReference{
			Kind: "Secret", APIVersion: "v1", Name: secret.Name, UID: secret.UID,
		})),
		"bound to a pod": s.tokenConfig(s.token(t, "robot", &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		})),
		"certificate":             s.certificateConfig(t, s.ca.user(t, "carl")),
		"certificate with groups": s.certificateConfig(t, s.ca.user(t, "carl:of/x", "dev", "ops")),
		"certificate of a master": s.certificateConfig(t, s.ca.user(t, "root", "system:masters")),
		"authenticated in O":      s.certificateConfig(t, s.ca.user(t, "carl", "system:authenticated", "dev")),
		"intermediate":            s.certificateConfig(t, middle.user(t, "dora", "dev")),
		"UID in the subject":      s.certificateConfig(t, numbered),
		"certificate and a token": certificate,
		"foreign certificate, token": func() *rest.Config {
			c := s.certificateConfig(t, newCA(t, "foreign").user(t, "carl"))
			c.BearerToken = s.UserConfig("ann").BearerToken
			return c
		}(),
	} {
		want, err := s.theirs(t, cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, code := s.ours(t, cfg); code != http.StatusOK || !cmp.Equal(got, want) {
			t.Errorf("%s: code %d, ours and theirs:\n%s", name, code, cmp.Diff(got, want))
		}
	}
}

func (s *real) testRefused(t *testing.T) {
	stranger := newCA(t, "clients")
	for name, cfg := range map[string]*rest.Config{
		"none":          s.withoutCredentials(),
		"unknown token": s.UserConfig("nobody"),
		"forged JWT": s.tokenConfig(
			jwt(`{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:default:robot"}`),
		),
		"foreign certificate":  s.certificateConfig(t, stranger.user(t, "root", "system:masters")),
		"certificate, no name": s.certificateConfig(t, s.ca.user(t, "", "system:masters")),
	} {
		if _, code := s.ours(t, cfg); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, code)
		}
		if user, err := s.theirs(t, cfg); err == nil && user.Username != anonymous {
			t.Errorf("%s: the API server accepts %+v", name, user)
		}
	}
}

func (s *real) testPowerless(t *testing.T) {
	a := s.open(t, "powerless")
	if _, err := a.Authenticate(t.Context(),
		presented(s.ca.user(t, "carl"))); code(err) != http.StatusServiceUnavailable ||
		err.Error() != authorityForbidden {
		t.Errorf("certificate: %v, want %s", err, authorityForbidden)
	}
	// The token is valid for a review of its own user.
	ann := bearer(s.UserConfig("ann").BearerToken)
	want, err := s.cluster.Authenticate(t.Context(), ann)
	expect.NoError(t, err)
	got, err := a.Authenticate(t.Context(), ann)
	expect.NoError(t, err)
	if diff := cmp.Diff(want.UserInfo, got.UserInfo); diff != "" {
		t.Errorf("the identity differs from that of a TokenReview (-want +got):\n%s", diff)
	}
	if _, err := a.Authenticate(t.Context(), bearer("invalid")); code(err) != http.StatusUnauthorized {
		t.Errorf("invalid token: %v, want 401", err)
	}
	// Without the right of every user, nothing tells the user of a token.
	binding, err := s.admin.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:basic-user", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.NoError(t, s.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
	defer func() {
		binding.ResourceVersion = ""
		_, err := s.admin.RbacV1().ClusterRoleBindings().Create(context.Background(), binding, metav1.CreateOptions{})
		expect.NoError(t, err)
	}()
	expect.Soon(t, "a token cannot be checked", func() bool {
		_, err := s.open(t, "powerless").Authenticate(t.Context(), ann)
		return code(err) == http.StatusServiceUnavailable && err.Error() == reviewForbidden
	})
}

func (s *real) testDeleted(t *testing.T) {
	s.account(t, "leaver")
	r := bearer(s.token(t, "leaver", nil))
	id, err := s.cluster.Authenticate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(id.Expires); left < 50*time.Minute || left > 61*time.Minute {
		t.Errorf("expires in %s", left)
	}
	if err := s.admin.CoreV1().ServiceAccounts("default").Delete(t.Context(), "leaver",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for authenticated(s.cluster, r) == http.StatusOK {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the token of a deleted service account is still accepted after 20 s")
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("refused %s after the service account was deleted, with a cache of 1 s",
		time.Since(begin).Round(100*time.Millisecond))
	if got := authenticated(s.cluster, r); got != http.StatusUnauthorized {
		t.Errorf("code %d", got)
	}
	if err := s.cluster.Reauthenticate(t.Context(), r, id); code(err) != http.StatusUnauthorized {
		t.Errorf("watch: %v", err)
	}
}

// testRotation adds an authority and then removes the first one. kube-apiserver does not
// remove it from the ConfigMap, so the test does that as an administrator has to.
func (s *real) testRotation(t *testing.T) {
	second := newCA(t, "second")
	carl, dora := presented(s.ca.user(t, "carl")), presented(second.user(t, "dora"))
	id, err := s.cluster.Authenticate(t.Context(), carl)
	if err != nil {
		t.Fatal(err)
	}
	change := func(pem string) {
		if err := os.WriteFile(s.caFile, []byte(pem), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(r *http.Request, want int) {
		t.Helper()
		begin := time.Now()
		expect.Eventually(t, 90*time.Second, func() error {
			if got := authenticated(s.cluster, r); got != want {
				return fmt.Errorf("the code is %d, want %d", got, want)
			}
			return nil
		})
		t.Logf("code %d %s after the authority had changed", want, time.Since(begin).Round(100*time.Millisecond))
	}
	change(s.ca.pem() + second.pem())
	follow(dora, http.StatusOK)
	if err := s.cluster.Reauthenticate(t.Context(), carl, id); err != nil {
		t.Errorf("both authorities: %v", err)
	}
	change(second.pem())
	removed := s.certificateConfig(t, s.ca.user(t, "carl"))
	expect.Eventually(t, 90*time.Second, func() error {
		if user, err := s.theirs(t, removed); err == nil && user.Username == "carl" {
			return errors.New("the API server accepts the removed authority")
		}
		return nil
	})
	if err := s.admin.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "extension-apiserver-authentication",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(carl, http.StatusUnauthorized)
	if got := authenticated(s.cluster, dora); got != http.StatusOK {
		t.Errorf("the authority that stays: %d", got)
	}
	if err := s.cluster.Reauthenticate(t.Context(), carl, id); code(err) != http.StatusUnauthorized {
		t.Errorf("watch with a certificate of the removed authority: %v", err)
	}
	s.ca = second
}

func (s *real) testDown(t *testing.T) {
	known, dora := bearer(s.UserConfig("ann").BearerToken), presented(s.ca.user(t, "dora"))
	for _, r := range []*http.Request{known, dora} {
		if got := authenticated(s.cluster, r); got != http.StatusOK {
			t.Fatal(got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.APIServer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // longer than CacheTTL and CARefresh
	for name, test := range map[string]struct {
		r    *http.Request
		want int
	}{
		"known token":       {known, 503},
		"unknown token":     {bearer("unknown"), 503},
		"certificate":       {dora, 200},
		"other certificate": {presented(s.ca.user(t, "eve")), 200},
		"bad certificate":   {presented(newCA(t, "x").user(t, "eve")), 401},
		"no credentials":    {presented(), 401},
	} {
		begin := time.Now()
		_, err := s.cluster.Authenticate(t.Context(), test.r)
		if code(err) != test.want || time.Since(begin) > 8*time.Second {
			t.Errorf("%s: %v after %s, want %d", name, err, time.Since(begin), test.want)
		}
		if err != nil && (strings.Contains(err.Error(), "127.0.0.1") ||
			strings.Contains(fmt.Sprintf("%+v", err), "connection refused")) {
			t.Errorf("%s: the caller learns %v", name, err)
		}
	}
}
