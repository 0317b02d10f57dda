// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCluster_withoutConnection has clusters whose checks end before a request. Those with
// requests are in TestTroubles of the program, with a real API server.
func TestCluster_withoutConnection(t *testing.T) {
	for name, c := range map[string]struct {
		entry  fleet.Entry
		check  string
		reason string
	}{
		"no credentials": {fleet.Entry{Err: errors.New("no such file")}, "credentials", "NoCredentials"},
		"no plugin": {
			fleet.Entry{
				Config: &rest.Config{
					Host: "https://127.0.0.1:1",
					ExecProvider: &clientcmdapi.ExecConfig{
						Command:         "/nonexistent/plugin",
						APIVersion:      "client.authentication.k8s.io/v1",
						InteractiveMode: "Never",
					},
				},
			}, "credentials", "NoCredentials",
		},
		"unreachable": {fleet.Entry{Config: &rest.Config{Host: "https://127.0.0.1:1"}}, "connection", "Unreachable"},
		"name": {
			fleet.Entry{
				Config:   &rest.Config{Host: "https://127.0.0.1:1"},
				Shadowed: []string{"directory /b"},
			}, "name", "NameTaken",
		},
	} {
		c.entry.Name = "one"
		results := Cluster(t.Context(), c.entry, &Options{Fleet: &fleet.Options{}, Program: "watershed"})
		found := false
		for _, r := range results {
			found = found || r.Check == c.check && r.Outcome == Bad && r.Reason == c.reason && r.Cluster == "one"
			if (r.Outcome == Good) == (r.Remedy != "") {
				t.Errorf("%s: a remedy for what is good, or none for a problem: %+v", name, r)
			}
		}
		if !found {
			t.Errorf("%s: %+v", name, results)
		}
	}
}

func TestClientExpiry(t *testing.T) {
	a, err := authority.New("test")
	expect.NoError(t, err)
	cert, _, err := a.Client("jane")
	expect.NoError(t, err)
	file := filepath.Join(t.TempDir(), "cert")
	expect.NoError(t, os.WriteFile(file, cert, 0o600))
	for _, c := range []rest.TLSClientConfig{{CertData: cert}, {CertFile: file}} {
		end, err := clientExpiry(&rest.Config{TLSClientConfig: c})
		if d := time.Until(end); err != nil || d < 360*24*time.Hour || d > 370*24*time.Hour {
			t.Errorf("%s, %v", end, err)
		}
	}
	if end, err := clientExpiry(&rest.Config{}); err != nil || !end.IsZero() {
		t.Error(end, err)
	}
	for _, c := range []rest.TLSClientConfig{{CertData: []byte("nonsense")}, {CertFile: "/nonexistent"}} {
		if _, err := clientExpiry(&rest.Config{TLSClientConfig: c}); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestDescribeMissing(t *testing.T) {
	pods, nodes := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "nodes"}
	names, text := describeMissing([]right{{"list", pods}, {"watch", pods}, {"watch", nodes}})
	if strings.Join(names, " ") != "pods nodes" || text != "may not list and watch pods, nor watch nodes" {
		t.Errorf("%q: %s", names, text)
	}
	many := strings.Split("a b c d e f g h i j", " ")
	if got := listed(many); got != "a, b, c, d, e, f, g, h and 2 more" {
		t.Error(got)
	}
}

// A cluster that does not answer does not make check wait for ever.
func TestCluster_ends(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := Cluster(ctx, fleet.Entry{
		Name:   "one",
		Config: &rest.Config{Host: "https://127.0.0.1:1"},
	}, &Options{Fleet: &fleet.Options{}})
	if last := results[len(results)-1]; last.Outcome != Bad {
		t.Errorf("%+v", last)
	}
}

// A server whose certificate is not verified works, with a warning.
func TestConnection_unverifiedServer(t *testing.T) {
	for _, plain := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"major":"1","minor":"30"}`)
		}))
		config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: !plain}}
		want := "insecure-skip-tls-verify"
		if plain {
			server.Start()
			want = "not one of https"
		} else {
			server.StartTLS()
		}
		config.Host = server.URL
		cluster, err := kube.FromConfig(config, nil)
		expect.NoError(t, err)
		i := &inspection{opts: &Options{}, cluster: cluster, entry: fleet.Entry{Config: config}}
		if !i.connection(t.Context()) || i.all[0].Outcome != Warning || !strings.Contains(i.all[0].Message, want) ||
			!strings.Contains(i.all[0].Remedy, "--certificate-authority") {
			t.Errorf("%+v", i.all)
		}
		cluster.CloseIdleConnections()
		server.Close()
	}
}

// A proxy that adds credentials, or an address without encryption, limits serve, and is a failure
// if serve is to pass requests on.
func TestCallers(t *testing.T) {
	for _, c := range []struct {
		plain       bool
		user        string // whom the server answers for
		passThrough bool
		want        Outcome
	}{
		{want: Good, passThrough: true},
		{want: Warning, user: "operator"},
		{want: Bad, user: "operator", passThrough: true},
		{want: Warning, plain: true},
		{want: Bad, plain: true, passThrough: true},
	} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.user == "" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			fmt.Fprintf(w, `{"status":{"userInfo":{"username":%q}}}`, c.user)
		}))
		if c.plain {
			server.Start()
		} else {
			server.StartTLS()
		}
		cluster, err := kube.FromConfig(&rest.Config{
			Host:            server.URL,
			TLSClientConfig: rest.TLSClientConfig{Insecure: !c.plain},
		}, nil)
		expect.NoError(t, err)
		i := &inspection{opts: &Options{PassThrough: c.passThrough}, cluster: cluster}
		i.callers(t.Context())
		cluster.CloseIdleConnections()
		server.Close()
		if got := i.all[0]; got.Outcome != c.want ||
			c.want != Good && (got.Reason != "IndistinctCallers" ||
				!strings.HasPrefix(got.Remedy, "use the https address of the API server itself")) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestGroup_rights has credentials that may not do everything with Leases, or only in another namespace.
func TestGroup_rights(t *testing.T) {
	for _, c := range []struct {
		denied, namespace string
		want              Outcome
		message           string
	}{
		{namespace: "shop", want: Good, message: "may hold a Lease of the replica group in namespace shop"},
		{namespace: "shop", denied: "delete", want: Bad, message: "may not delete leases in namespace shop"},
		{namespace: "other", want: Bad, message: "may not get, list, create, update, delete leases in namespace other"},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review authorizationv1.SelfSubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = a.Namespace == "shop" && a.Verb != c.denied && a.Group == "coordination.k8s.io" &&
				a.Resource == "leases"
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(review)
		}))
		cluster, err := kube.FromConfig(&rest.Config{
			Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		}, nil)
		expect.NoError(t, err)
		i := &inspection{opts: &Options{GroupNamespace: c.namespace}, cluster: cluster}
		i.clients, err = newReviewClients(cluster)
		expect.NoError(t, err)
		i.group(t.Context())
		cluster.CloseIdleConnections()
		server.Close()
		if got := i.all[0]; got.Outcome != c.want || got.Message != c.message ||
			c.want != Good && !strings.Contains(got.Remedy, "--group-namespace") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
