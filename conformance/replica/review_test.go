// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/replica"
)

// reviews are resources that are answered by the cluster itself, for its administrator.
func (w *comparedCluster) reviews() []replica.ProgramResource {
	review := func(resource, kind string, empty func() runtime.Object,
		create func(ctx context.Context, o runtime.Object) (runtime.Object, error)) replica.ProgramResource {
		gv := authorizationv1.SchemeGroupVersion
		if resource == "selfsubjectreviews" {
			gv = authenticationv1.SchemeGroupVersion
		}
		return replica.ProgramResource{
			GroupVersionResource: gv.WithResource(resource), Kind: kind, Singular: strings.ToLower(kind),
			Fleet: resource == "selfsubjectreviews", New: empty,
			Create: func(r *http.Request, _ *replica.Request, o runtime.Object) (runtime.Object, error) {
				return create(r.Context(), o)
			},
		}
	}
	opts := metav1.CreateOptions{}
	return []replica.ProgramResource{
		review("selfsubjectaccessreviews", "SelfSubjectAccessReview", func() runtime.Object {
			return &authorizationv1.SelfSubjectAccessReview{}
		}, func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
			return w.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
				o.(*authorizationv1.SelfSubjectAccessReview), opts)
		}),
		review("selfsubjectrulesreviews", "SelfSubjectRulesReview", func() runtime.Object {
			return &authorizationv1.SelfSubjectRulesReview{}
		}, func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
			return w.client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
				o.(*authorizationv1.SelfSubjectRulesReview), opts)
		}),
		review("selfsubjectreviews", "SelfSubjectReview", func() runtime.Object {
			return &authenticationv1.SelfSubjectReview{}
		}, func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
			return w.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, o.(*authenticationv1.SelfSubjectReview),
				opts)
		}),
	}
}

// startReviewer runs a replica in this process, which answers reviews, and returns its
// address.
func (w *comparedCluster) startReviewer(t *testing.T) string {
	t.Helper()
	clusters, err := directory.NewStatic(fleet.Entry{Name: clusterName, Config: w.cluster.Config()})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	f, err := fleet.New(clusters, &fleet.Options{Resources: mirrored, History: 16 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	server, err := replica.New(f, &replica.Options{ProgramResources: w.reviews(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- f.Run(ctx) }()
	go func() { ended <- server.Run(ctx) }()
	h := httptest.NewServer(server)
	t.Cleanup(func() {
		h.Close()
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	soon, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := f.WaitForSync(soon); err != nil {
		t.Fatal(err)
	}
	return h.URL
}

// TestReviews runs kubectl's questions about access against both, and compares the responses
// to requests that are good and not good.
func TestReviews(t *testing.T) {
	w := theComparedCluster(t)
	address := w.startReviewer(t)
	t.Run("kubectl", func(t *testing.T) { w.compareReviews(t, address) })
	copy, err := newSubject("reviewer", &rest.Config{Host: address}, "/clusters/"+clusterName)
	if err != nil {
		t.Fatal(err)
	}
	defer copy.client.CloseIdleConnections()
	t.Run("requests", func(t *testing.T) { w.compareCreations(t, copy) })
	t.Run("discovery", func(t *testing.T) { w.compareListedReviews(t, copy) })
}

func (w *comparedCluster) compareReviews(t *testing.T, address string) {
	server, _ := w.terminals(t)
	for _, path := range []string{"/clusters/" + clusterName, "/fleet"} {
		dir := t.TempDir()
		copy := terminal{server.kubectl, filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cache")}
		text := fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"x"}}]}`, address+path,
		)
		if err := os.WriteFile(copy.kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lines := []string{"auth whoami", "auth whoami -o jsonpath={.kind}/{.status}"}
		if path != "/fleet" {
			lines = append(lines, "auth can-i get pods", "auth can-i list deployments.apps -n shop",
				"auth can-i get /healthz", "auth can-i --list -n shop", "auth can-i create pods --subresource=exec")
		}
		for _, line := range lines {
			a, b := server.run(t.Context(), words(line)...), copy.run(t.Context(), words(line)...)
			a.stdout, b.stdout = sortLines(a.stdout), sortLines(b.stdout)
			if unlike := differ(a, b); unlike != "" || a.code != 0 || a.stdout == "" {
				t.Errorf("%s: kubectl %s: %d\n%s", path, line, a.code, unlike)
			}
		}
	}
}

// compareCreations sends reviews that are good and not good to both.
func (w *comparedCluster) compareCreations(t *testing.T, copy *subject) {
	const (
		access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
		good   = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`
	)
	for _, c := range []struct{ method, path, media, accept, body string }{
		{"POST", access, "", "", good},
		{"POST", access, jsonAccept, jsonAccept, good},
		{"POST", access, "application/json; charset=utf-8", "application/yaml", good},
		{
			"POST", access, "application/yaml", protobufAccept,
			"spec: {resourceAttributes: {verb: get, resource: pods}}\n",
		},
		{"POST", access, protobufAccept, jsonAccept, good},
		{"POST", access, "text/plain", jsonAccept, good},
		{"POST", access, jsonAccept, "text/plain", good},
		{"POST", access, jsonAccept, jsonAccept, `{"spec":`},
		{"POST", access, jsonAccept, jsonAccept, `{"kind":"Pod","apiVersion":"v1"}`},
		{
			"POST", access, jsonAccept, jsonAccept,
			`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v2"}`,
		},
		{"POST", access, jsonAccept, jsonAccept, `{"spec":{"resourceAttributes":{"verb":1}}}`},
		{"POST", access, jsonAccept, jsonAccept, ``},
		{
			"POST", access + "?fieldValidation=Strict", jsonAccept, jsonAccept,
			`{"spec":{"resourceAttributes":{"verb":"get"},"x":1}}`,
		},
		{"POST", access + "?fieldValidation=x", jsonAccept, jsonAccept, good},
		{"POST", access + "?dryRun=All", jsonAccept, jsonAccept, good},
		{"POST", access + "?dryRun=x", jsonAccept, jsonAccept, good},
		{"POST", access + "/x", jsonAccept, jsonAccept, good},
		{
			"POST", "/apis/authorization.k8s.io/v1/namespaces/shop/selfsubjectaccessreviews", jsonAccept, jsonAccept,
			good,
		},
		{"POST", whoami, jsonAccept, jsonAccept, `{}`},
		{"GET", access, "", jsonAccept, ""},
		{"GET", access + "?watch=true", "", jsonAccept, ""},
		{"DELETE", access, "", jsonAccept, ""},
		{"GET", access + "/x", "", jsonAccept, ""},
	} {
		a, b := w.create(t, w.server, c.method, c.path, c.media, c.accept, c.body),
			w.create(t, copy, c.method, c.path, c.media, c.accept, c.body)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s %s as %q, accepting %q: %s\n\tserver:  %v\n\treplica: %v", c.method, c.path, c.media, c.accept,
				c.body, a, b)
		}
	}
}

// create sends a body, and returns the parts of the response that must be equal.
func (w *comparedCluster) create(t *testing.T, s *subject, method, path, media, accept, body string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.root+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": media, "Accept": accept} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answered, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"code":     resp.StatusCode,
		"type":     resp.Header.Get("Content-Type"),
		"warnings": len(resp.Header.Values("Warning")),
	}
	var value map[string]any
	if json.Unmarshal(answered, &value) == nil {
		delete(value, "metadata") // the server adds its manager
		if message := text(value, "message"); strings.Contains(message, "cannot be handled as") {
			value["message"], _, _ = strings.Cut(message, ": ") // names of Go types follow
		}
		got["body"] = value
	}
	return got
}

// compareListedReviews compares the entries of discovery.
func (w *comparedCluster) compareListedReviews(t *testing.T, copy *subject) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	listed := func(s *subject) (groups []string, entries map[string]any) {
		a := s.send(t.Context(), request{Method: http.MethodGet, URI: "/apis", Accept: aggregated})
		v, err := value(a)
		if a.err != nil || err != nil {
			t.Fatal(a.err, err)
		}
		entries = map[string]any{}
		for _, g := range at(v, "items").([]any) {
			groups = append(groups, text(g, "metadata", "name"))
			for _, version := range at(g, "versions").([]any) {
				resources, _ := at(version, "resources").([]any)
				for _, r := range resources {
					if name := text(r, "resource"); strings.HasPrefix(name, "selfsubject") {
						entries[groups[len(groups)-1]+"/"+text(version, "version")+"/"+name] = r
					}
				}
			}
		}
		return groups, entries
	}
	serverGroups, want := listed(w.server)
	copyGroups, got := listed(copy)
	serverGroups = slices.DeleteFunc(serverGroups, func(name string) bool { return !slices.Contains(copyGroups, name) })
	if !slices.Equal(serverGroups, copyGroups) {
		t.Errorf("groups are %v, want %v", copyGroups, serverGroups)
	}
	if !reflect.DeepEqual(want, got) || len(got) != 3 {
		t.Errorf("the server lists %v, the replica %v", want, got)
	}
}
