// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestMetrics_labelsAreBounded sends requests for resources that do not exist, and checks
// which callers may read the metrics.
func TestMetrics_labelsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: make e2e runs it")
	}
	w := newTroubledFleet(t)
	scrape := func() string {
		code, body, err := w.get(t.Context(), "/metrics")
		expect.NoError(t, err)
		expect.Equal(t, code, http.StatusOK)
		return string(body)
	}
	expect.Eventually(t, 20*time.Second, func() error {
		if code, _, err := w.get(t.Context(), "/clusters/good/api/v1/pods"); err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %w", code, err)
		}
		return nil
	})
	for i := range 50 {
		for _, path := range []string{
			"/clusters/good/api/v1/made-up-%d", "/clusters/good/apis/made-up-%d/v1/pods",
			"/clusters/made-up-%d/api/v1/pods", "/fleet/api/v1/made-up-%d", "/fleet/api/made-up-%d/pods",
		} {
			_, _, err := w.get(t.Context(), fmt.Sprintf(path, i))
			expect.NoError(t, err)
		}
	}
	text := scrape()
	if strings.Contains(text, "made-up") {
		t.Error("the metrics have labels that a client has made up")
	}
	for _, want := range []string{
		`watershed_requests_total{code="200",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"}`,
		`watershed_requests_total{code="404",group="",resource="other",scope="cluster",subresource="",verb="LIST",version=""}`,
		`watershed_cluster_state{cluster="good",state="live"} 1`,
		`watershed_upstream_requests_saved_total{cluster="good",verb="LIST"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	// The page has access control, that of --metrics-listen has none.
	resp, err := w.client.Get(w.url + "/metrics")
	expect.NoError(t, err)
	resp.Body.Close()
	expect.Equal(t, resp.StatusCode, http.StatusUnauthorized)
	resp, err = http.Get("http://" + w.metrics + "/metrics")
	expect.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.NoError(t, err)
	expect.Equal(t, resp.StatusCode == http.StatusOK && strings.Contains(string(body), "watershed_objects{"), true)
	http.DefaultClient.CloseIdleConnections()
}

// TestMetrics_homeDecides has a user that the home cluster allows to get /metrics, as
// kube-apiserver does, and one that it does not.
func TestMetrics_homeDecides(t *testing.T) {
	k := kubetest.Start(t, &kubetest.Options{Name: "real", Users: []kubetest.User{{Name: "jane"}, {Name: "joe"}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	expect.NoError(t, grantMetrics(ctx, k, "jane"))
	dir := t.TempDir()
	s := &state.Dir{Path: filepath.Join(dir, "state")}
	startServe(t, s, "--kubeconfig", k.Kubeconfig(), "--context", k.Name(), "--home", k.Name())
	printed := printedKubeconfig(t, s)
	served := printed.Clusters[printed.Contexts[contextPrefix+k.Name()].Cluster]
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(served.CertificateAuthorityData)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	address, _, _ := strings.Cut(served.Server, "/clusters/")
	for user, want := range map[string]int{"jane": http.StatusOK, "joe": http.StatusForbidden} {
		// The cluster itself decides the same about its own metrics.
		for _, at := range []string{address, k.Config().Host} {
			expect.Eventually(t, time.Minute, func() error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/metrics", http.NoBody)
				if err != nil {
					return err
				}
				req.Header.Set("Authorization", "Bearer "+k.UserConfig(user).BearerToken)
				own := client
				if at != address {
					own = clusterClient(t, k)
				}
				resp, err := own.Do(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					return fmt.Errorf("%s at %s: %s, want %d", user, at, resp.Status, want)
				}
				return nil
			})
		}
	}
	token, err := s.Owner()
	expect.NoError(t, err)
	testRequestLabels(t, k, client, clusterClient(t, k), address, token)
}

// testRequestLabels sends the same requests to both, and compares the
// labels that they are counted by. It reads resources that no other program reads.
func testRequestLabels(t *testing.T, k *kubetest.Cluster, replica, own *http.Client, address, token string) {
	t.Helper()
	read := func(client *http.Client, token, url string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		expect.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		expect.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		expect.NoError(t, err)
		return string(body)
	}
	// A resource that is not synced is answered with another code.
	expect.Eventually(t, time.Minute, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/readyz", http.NoBody)
		expect.NoError(t, err)
		resp, err := replica.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("/readyz: %s", resp.Status)
		}
		if resp != nil {
			resp.Body.Close()
		}
		return err
	})
	admin := k.Config()
	for _, path := range []string{
		"/api/v1/namespaces/default/podtemplates", "/api/v1/namespaces/default/podtemplates/none",
		"/api/v1/namespaces/default/podtemplates?watch=true&timeoutSeconds=1",
		"/apis/networking.k8s.io/v1/ingressclasses/none",
		"/apis/networking.k8s.io/v1/ingressclasses?fieldSelector=metadata.name=none",
	} {
		read(replica, token, address+"/clusters/"+k.Name()+path)
		read(own, admin.BearerToken, admin.Host+path)
	}
	want := requestLabels(read(own, admin.BearerToken, admin.Host+"/metrics"), "apiserver_request_total")
	expect.Eventually(t, 10*time.Second, func() error {
		if got := requestLabels(read(replica, token, address+"/metrics"),
			"watershed_requests_total"); !slices.Equal(got, want) {
			return fmt.Errorf("requests have the labels %q, in kube-apiserver %q", got, want)
		}
		return nil
	})
}

// requestLabels returns the labels of a metric that both servers have, for the resources of
// the test. Lists and watches of a whole cluster are also those of the fleet.
func requestLabels(text, metric string) []string {
	var all []string
	for line := range strings.Lines(text) {
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(line, -1) {
			labels[pair[1]] = pair[2]
		}
		if !strings.HasPrefix(line, metric+"{") || labels["scope"] == "cluster" ||
			labels["resource"] != "podtemplates" && labels["resource"] != "ingressclasses" {
			continue
		}
		var values []string
		for _, name := range []string{"verb", "group", "version", "resource", "subresource", "scope", "code"} {
			values = append(values, labels[name])
		}
		all = append(all, strings.Join(values, " "))
	}
	slices.Sort(all)
	return all
}

// labelPair matches a label of a series.
var labelPair = regexp.MustCompile(`(\w+)="([^"]*)"`)

// grantMetrics gives a user the right to get the path /metrics.
func grantMetrics(ctx context.Context, k *kubetest.Cluster, user string) error {
	client, err := kubernetes.NewForConfig(k.Config())
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics",
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// clusterClient returns a client that trusts the API server and has no credentials.
func clusterClient(t *testing.T, k *kubetest.Cluster) *http.Client {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(k.Config().CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}
