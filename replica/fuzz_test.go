// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// fuzzedReplica returns a replica of two clusters, which has synced.
func fuzzedReplica(f *testing.F) *pipedReplica {
	f.Helper()
	w, stop := newPipedReplica(f, []string{"one", "two"}, func(w *pipedReplica) {
		withReviews(w)
		w.options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	})
	f.Cleanup(stop)
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	if err := w.fleet.WaitForSync(ctx); err != nil {
		f.Fatal(err)
	}
	return w
}

// fuzzAnswer records a response. A watch ends soon after it has begun.
type fuzzAnswer struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (a *fuzzAnswer) FlushError() error {
	time.AfterFunc(time.Millisecond, a.end)
	return nil
}

// Flush implements [http.Flusher].
func (a *fuzzAnswer) Flush() { _ = a.FlushError() }

// SetWriteDeadline lets the tracker limit the response.
func (a *fuzzAnswer) SetWriteDeadline(time.Time) error { return nil }

// fuzz sends a request, and returns its response unless that took too long. It fails if the
// server panics or has a mistake of its own.
func (w *pipedReplica) fuzz(t *testing.T, method, target, accept, body string) *httptest.ResponseRecorder {
	t.Helper()
	at, err := url.ParseRequestURI(target)
	if err != nil {
		t.Skip("not a request")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", strings.NewReader(body))
	r.Method, r.URL, r.RequestURI = method, at, target
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	a := &fuzzAnswer{httptest.NewRecorder(), cancel}
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%s %s as %q panics: %v", method, target, accept, p)
		}
	}()
	w.server.ServeHTTP(a, r)
	if a.Code == http.StatusInternalServerError && ctx.Err() == nil &&
		!strings.Contains(a.Body.String(), "resourceVersion: Invalid value") { // the 500 of kube-apiserver
		t.Errorf("%s %s as %q: %s", method, target, accept, a.Body)
	}
	if ctx.Err() != nil && a.Code != http.StatusOK {
		t.Skip("it waits for a version")
	}
	return a.ResponseRecorder
}

// FuzzRequest sends requests for any path with any query.
func FuzzRequest(f *testing.F) {
	w := fuzzedReplica(f)
	for _, path := range []string{
		"/clusters", "/readyz?verbose", "/clusters/one/api", "/fleet/apis", "/clusters/one/openapi/v3",
		"/clusters/one/version", "/clusters/one/apis/authorization.k8s.io/v1",
		"/clusters/one/api/v1/configmaps?limit=1&resourceVersion=10&resourceVersionMatch=Exact",
		"/fleet/api/v1/configmaps?watch=1&watershedFleet=keyed-by-cluster&allowWatchBookmarks=true&timeoutSeconds=1",
		"/clusters/one/api/v1/namespaces/shop/configmaps/a/status?pretty=true",
		"/clusters/one/api/v1/watch/namespaces/shop/configmaps/a?resourceVersion=0",
		"/clusters/one/api/v1/secrets?sendInitialEvents=true",
		"/fleet/api/v1/namespaces/shop/configmaps/a?resourceVersion=0",
		"/clusters/one/api/v1/configmaps?watershedRead=consistent&fieldSelector=metadata.name%3Da",
		"/api/v1//configmaps/%2e%2e/x?timeout=1x&export=1",
		accessPath, "/fleet" + identityPath,
		"/clusters/one/api/v1/configmaps?labelSelector=watershed.dev%2Fcluster%20in%20(one)",
		"//clusters//one/api/v1/proxy/x", "/clusters/%00/api?continue=e30",
	} {
		f.Add(byte(0), path, "", "")
	}
	f.Add(byte(1), accessPath, "application/yaml",
		`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get"}}}`)
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "X"}
	f.Fuzz(func(t *testing.T, method byte, target, accept, body string) {
		w.fuzz(t, methods[int(method)%len(methods)], target, accept, body)
	})
}

// FuzzSelector compares the objects that selectors select with those that apimachinery
// selects.
func FuzzSelector(f *testing.F) {
	w := fuzzedReplica(f)
	for _, label := range []string{
		"", "app", "!app", "app=a", "app!=a", "app in (a,b)", "app notin (a),x", "app>1", "watershed.dev/cluster=one",
		"app=a,app=b", "!!", "a/b/c",
	} {
		f.Add(label, "")
	}
	for _, field := range []string{
		"metadata.name=a", "metadata.name!=a", "metadata.namespace==shop,metadata.name=b", "metadata.name", "data.x=1",
		`metadata.name=\=`, "metadata.name=,metadata.name=a",
	} {
		f.Add("", field)
	}
	f.Fuzz(func(t *testing.T, label, field string) {
		query := "?" + url.Values{"labelSelector": {label}, "fieldSelector": {field}}.Encode()
		w.fuzz(t, "GET", "/fleet/api/v1/configmaps"+query, "", "")
		w.fuzz(t, "GET", "/clusters/one/api/v1/configmaps"+query+"&watch=1", "", "")
		a := w.fuzz(t, "GET", "/clusters/one/api/v1/configmaps"+query, "", "")
		byLabel, err := labels.Parse(label)
		byField, err2 := fields.ParseSelector(field)
		if err != nil || err2 != nil || slices.ContainsFunc(byField.Requirements(), func(r fields.Requirement) bool {
			return r.Field != "metadata.name" && r.Field != "metadata.namespace"
		}) {
			if a.Code != http.StatusBadRequest {
				t.Errorf("%q %q: %d, want 400", label, field, a.Code)
			}
			return
		}
		var want []string
		for _, name := range []string{"a", "b"} {
			if byLabel.Matches(labels.Set{"app": name}) && byField.Matches(fields.Set{
				"metadata.name": name, "metadata.namespace": "shop",
			}) {
				want = append(want, name)
			}
		}
		if got, err := names(a.Body.Bytes()); a.Code != http.StatusOK || err != nil || !slices.Equal(got, want) {
			t.Errorf("%q %q: %d %v, want %v: %v", label, field, a.Code, got, want, err)
		}
	})
}

// names returns the names of the objects of a list.
func names(body []byte) ([]string, error) {
	var list metav1.PartialObjectMetadataList
	err := json.Unmarshal(body, &list)
	var all []string
	for _, item := range list.Items {
		all = append(all, item.Name)
	}
	return all, err
}

// FuzzContinue sends continue tokens. One that is accepted never returns more than the list.
func FuzzContinue(f *testing.F) {
	w := fuzzedReplica(f)
	for _, path := range []string{"/clusters/one/api/v1/configmaps?limit=1", "/fleet/api/v1/configmaps?limit=1"} {
		_, _, body := w.get(path)
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Continue == "" {
			f.Fatalf("%s: %s", path, body)
		}
		f.Add(list.Continue, uint8(1))
	}
	for _, token := range []string{
		"", "x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0Ijoic2hvcC9hXHUwMDAwIn0",
	} {
		f.Add(token, uint8(0))
	}
	f.Fuzz(func(t *testing.T, token string, limit uint8) {
		query := "?" + url.Values{"continue": {token}, "limit": {string('0' + rune(limit%4))}}.Encode()
		for path, most := range map[string]int{
			"/clusters/one/api/v1/configmaps":                 2,
			"/clusters/two/api/v1/namespaces/shop/configmaps": 2,
			"/fleet/api/v1/configmaps":                        4,
		} {
			a := w.fuzz(t, "GET", path+query, "", "")
			got, err := names(a.Body.Bytes())
			switch a.Code {
			case http.StatusOK:
				if err != nil || len(got) > most || limit%4 > 0 && len(got) > int(limit%4) {
					t.Errorf("%s%s: %v %v", path, query, got, err)
				}
			case http.StatusBadRequest, http.StatusGone:
			default:
				t.Errorf("%s%s: %d %s", path, query, a.Code, a.Body)
			}
		}
	})
}

// FuzzAccept sends Accept headers. The response is in the media type that it names.
func FuzzAccept(f *testing.F) {
	w := fuzzedReplica(f)
	for _, accept := range []string{
		"", "*/*", "application/json", "application/yaml;q=0.5,*/*;q=0.1", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", "application/json;stream=watch",
		"application/json;pretty=1", "text/html", "application/*;sv=",
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		for _, path := range []string{
			"/api/v1/configmaps", "/api/v1/namespaces/shop/configmaps/a", "/api/v1/configmaps?watch=1", "/api", "/apis",
			"/api/v1/nothings", "/openapi/v2",
		} {
			a := w.fuzz(t, "GET", "/clusters/one"+path, accept, "")
			body, _, _ := strings.Cut(a.Header().Get("Content-Type"), ";")
			good := true
			switch body {
			case "application/json":
				good = strings.Contains(path, "watch") || json.Valid(a.Body.Bytes())
			case "application/yaml":
				_, err := yaml.YAMLToJSON(a.Body.Bytes())
				good = err == nil
			case "application/vnd.kubernetes.protobuf":
				good = strings.Contains(path, "watch") && a.Code == http.StatusOK ||
					bytes.HasPrefix(a.Body.Bytes(), []byte("k8s\x00"))
			}
			if !good || !slices.Contains([]int{http.StatusOK, http.StatusNotAcceptable, http.StatusNotFound}, a.Code) {
				t.Errorf("%s as %q: %d %q %q", path, accept, a.Code, body, a.Body)
			}
		}
	})
}
