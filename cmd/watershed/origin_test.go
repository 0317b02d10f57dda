// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// origin is a simulated cluster behind a server that also answers reviews. A token is the name
// of its user, with groups after it: "ann,devs".
type origin struct {
	*httptest.Server
	cluster *simulated.Cluster
	// group is the one that users need to read pods, "" if they need none.
	group string
	// held makes requests for a single pod wait until it is closed.
	held chan struct{}

	mu       sync.Mutex
	requests []string
	// parents has the last traceparent of each method.
	parents map[string]string
}

// refusedToken is a token that origins do not accept.
const refusedToken = "refused"

// startOrigins starts clusters that end with the test.
func startOrigins(t *testing.T, n, pods int) []*origin {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Clusters: n, Pods: pods, Namespaces: 2, Types: 1})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var all []*origin
	for i := range n {
		o := &origin{cluster: s.Cluster(i), parents: map[string]string{}}
		o.Server = httptest.NewUnstartedServer(o)
		o.EnableHTTP2 = true
		o.StartTLS()
		t.Cleanup(o.Close)
		t.Cleanup(o.CloseClientConnections)
		all = append(all, o)
	}
	return all
}

// ServeHTTP implements [http.Handler].
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.requests = append(o.requests, r.Method+" "+r.URL.String())
	o.parents[r.Method] = r.Header.Get("Traceparent")
	o.mu.Unlock()
	if token := r.Header.Get("Authorization"); token == "" || strings.HasPrefix(token, "Bearer watershed-check-") {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	refused := r.Header.Get("Authorization") == "Bearer "+refusedToken
	r.Header.Set("Authorization", "Bearer "+o.cluster.Config().BearerToken)
	switch {
	case refused:
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "reviews"):
		o.review(w, r)
	case r.Method != http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 418}`)
	case r.URL.Path == "/apis":
		o.discover(w, r)
	case strings.HasPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/v1/"):
		http.Error(w, "no", http.StatusForbidden) // the test is about the request
	case o.held != nil && strings.Contains(r.URL.Path, "/pods/"):
		select {
		case <-o.held:
		case <-r.Context().Done():
		}
	default:
		o.cluster.ServeHTTP(w, r)
	}
}

// discover adds roles to the discovery of the cluster.
func (o *origin) discover(w http.ResponseWriter, r *http.Request) {
	recorded := httptest.NewRecorder()
	o.cluster.ServeHTTP(recorded, r)
	var groups apidiscoveryv2.APIGroupDiscoveryList
	body := recorded.Body.Bytes()
	if strings.Contains(recorded.Header().Get("Content-Type"), "as=APIGroupDiscoveryList") &&
		json.Unmarshal(body, &groups) == nil {
		roles := apidiscoveryv2.APIResourceDiscovery{
			Resource: "roles", Scope: apidiscoveryv2.ScopeNamespace, SingularResource: "role",
			Verbs:        []string{"get", "list", "watch"},
			ResponseKind: &metav1.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		}
		groups.Items = append(groups.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: "rbac.authorization.k8s.io"},
			Versions: []apidiscoveryv2.APIVersionDiscovery{
				{
					Version:   "v1",
					Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
					Resources: []apidiscoveryv2.APIResourceDiscovery{roles},
				},
			},
		})
		body, _ = json.Marshal(groups)
	}
	for name, values := range recorded.Header() {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(body)
}

// review answers a review.
func (o *origin) review(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		names := strings.Split(review.Spec.Token, ",")
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true,
			User:          authenticationv1.UserInfo{Username: names[0], Groups: names[1:]},
		}
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = o.group == "" || slices.Contains(review.Spec.Groups, o.group)
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status.Allowed = true
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	text, _ := runtime.Encode(
		scheme.Codecs.LegacyCodec(authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion), object,
	)
	_, _ = w.Write(text)
}

// traceparent returns the header of the last request with a method.
func (o *origin) traceparent(method string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.parents[method]
}

// asked returns how many requests had a text.
func (o *origin) asked(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, request := range o.requests {
		if strings.Contains(request, text) {
			n++
		}
	}
	return n
}

// kubeconfigOf writes a kubeconfig with contexts for origins. The last one is the current one.
func kubeconfigOf(t *testing.T, origins map[string]*origin, current string) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	for name, o := range origins {
		k.Clusters[name] = &clientcmdapi.Cluster{
			Server:                   o.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw}),
		}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "replica"}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	k.CurrentContext = current
	path := filepath.Join(t.TempDir(), "config")
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
	return path
}
