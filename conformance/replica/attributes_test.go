// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"errors"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/replica"
)

var attributesSeed = flag.Uint64("attributes.seed", 0,
	"seed of the random requests of TestAttributes; 0 takes the time")

// TestAttributes compares the attributes that the replica's hooks receive with those that
// kube-apiserver authorizes, for random requests. A hook that applies RBAC decides the same
// only if they are equal.
func TestAttributes(t *testing.T) {
	seed := *attributesSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	// The factory logs every option that it cannot parse.
	klog.SetLogger(logr.Discard())
	defer klog.ClearLogger()
	var got replica.Attributes
	server := attributesServer(t, func(q *replica.Request) {
		got = q.Attributes()
		if !routesAsAuthorized(q) {
			t.Errorf("%s is routed as %+v and authorized as %+v", q.Path, q, got)
		}
	})
	kube := apirequest.RequestInfoFactory{
		APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
	}
	resources := 0
	for range 20_000 {
		method, uri := randomRequest(r)
		got = replica.Attributes{}
		server.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), method, "/clusters/eu"+uri, http.NoBody))
		info, err := kube.NewRequestInfo(httptest.NewRequestWithContext(t.Context(), method, uri, http.NoBody))
		want := replica.Attributes{
			Verb: info.Verb, Path: info.Path, IsResource: info.IsResourceRequest,
			Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
			Namespace: info.Namespace, Name: info.Name,
			FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
		}
		if got != want {
			t.Errorf("%s %s (%v)\n\treplica        %+v\n\tkube-apiserver %+v", method, uri, err, got, want)
		}
		if want.IsResource {
			resources++
		}
	}
	if resources < 5_000 {
		t.Errorf("only %d requests were for resources", resources)
	}
}

// routesAsAuthorized reports whether a read is answered from the object or the objects
// that its attributes name. If it were not, a request could be authorized for one object
// and answered with another.
func routesAsAuthorized(q *replica.Request) bool {
	a := q.Attributes()
	if !q.IsResource || q.Verb != "get" && q.Verb != "list" && q.Verb != "watch" || q.Resource == "" ||
		q.Resource == "proxy" || q.Resource == "watch" {
		return true // it is not answered from a copy: no resource has these names
	}
	subresource, _, _ := strings.Cut(q.Subresource, "/")
	return a.IsResource && a.Group == q.Group && a.Version == q.Version && a.Resource == q.Resource &&
		a.Subresource == subresource &&
		(a.Name == q.Name || q.Name == "") &&
		(a.Namespace == q.Namespace || q.Resource == "namespaces" && q.Namespace == "") && a.Verb == q.Verb
}

// attributesServer returns a replica without clusters that passes every request to look,
// and refuses it.
func attributesServer(t *testing.T, look func(*replica.Request)) http.Handler {
	t.Helper()
	clusters, err := directory.NewStatic()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(clusters, &fleet.Options{History: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server, err := replica.New(f,
		&replica.Options{Authorize: func(_ *http.Request, q *replica.Request) (*replica.Access, error) {
			look(q)
			return nil, errors.New("refused")
		}})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func randomRequest(r *rand.Rand) (method, uri string) {
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	parts := []string{pick("api", "apis", "api", "apis", "", "healthz", "openapi")}
	if parts[0] == "apis" {
		parts = append(parts, pick("apps", "example.com"))
	}
	parts = append(parts, "v1")
	for range r.IntN(7) {
		parts = append(parts, pick("pods", "namespaces", "namespaces", "nodes", "shop", "a", "status", "finalize",
			"log", "proxy", "watch", "scale", "", "x%2Fy", "."))
	}
	uri = "/" + strings.Join(parts, "/") + pick("", "", "", "/", "//")
	var query []string
	for range r.IntN(4) {
		query = append(query, pick("watch", "watch=1", "watch=true", "watch=false", "watch=0", "watch=maybe", "limit=5",
			"limit=x", "timeoutSeconds=y",
			"fieldSelector=metadata.name%3Da", "fieldSelector=metadata.name%3Da%2Fb",
			"fieldSelector=metadata.name%3Da,spec.nodeName%3Db", "fieldSelector=%3D%3D%3D",
			"fieldSelector=metadata.name!%3Da", "labelSelector=app%3Dweb", "labelSelector=%21%21", "resourceVersion=1",
			"sendInitialEvents=1", "allowWatchBookmarks=perhaps"))
	}
	if len(query) > 0 {
		uri += "?" + strings.Join(query, "&")
	}
	return pick("GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"), uri
}
