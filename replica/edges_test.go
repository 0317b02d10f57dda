// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/warning"
)

// everyKind has a path for each kind of response.
var everyKind = []string{
	"/healthz", "/readyz", "/clusters", "/nothing", "/fleet/api", "/fleet/apis", "/fleet/openapi/v2", "/fleet/nothing",
	"/fleet/api/v1/configmaps", "/fleet/readyz",
	"/clusters/none/api", "/clusters/one/api", "/clusters/one/apis", "/clusters/one/api/v1", "/clusters/one/version",
	"/clusters/one/healthz", "/clusters/one/openapi/v2",
	"/clusters/one/openapi/v3", "/clusters/one/api/v1/configmaps", "/clusters/one/api/v1/namespaces/shop/configmaps/a",
	"/clusters/one/api/v1/namespaces/shop/configmaps/none",
	"/clusters/one/api/v1/secrets", "/clusters/one/api/v1/configmaps?watch=1&timeoutSeconds=1",
	"/clusters/one/api/v1/configmaps?watershedRead=consistent",
	"/clusters/one/api/v1/configmaps?resourceVersion=x",
}

// statusIn parses a Status.
func statusIn(t *testing.T, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" {
		t.Errorf("not a status: %.200s", body)
	}
	return s
}

// A browser never treats a response as a page of this server, whatever a cluster sends.
func TestServer_forbidsSniffing(t *testing.T) {
	inMemory(t, []string{"one", "two"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, path := range everyKind {
			if code, h, _ := w.get(path); h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %v", path, code, h)
			}
		}
	})
}

// A request that impersonates another user is not answered with the replica's own rights.
func TestServer_refusesImpersonation(t *testing.T) {
	inMemory(t, []string{"one", "two"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, path := range everyKind {
			for _, name := range []string{
				"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes",
				"impersonate-extra-acme.com%2fproject",
			} {
				code, _, body := w.get(path, name, "bob")
				if s := statusIn(t, body); code != http.StatusForbidden || s.Reason != metav1.StatusReasonForbidden ||
					!strings.Contains(s.Message, "impersonation") {
					t.Errorf("%s with %s: %d %s", path, name, code, body)
				}
			}
		}
	})
}

// The replica is ready when it has read the clusters that can be read, and stays so.
func TestReady_waitsForClusters(t *testing.T) {
	open := make(chan struct{})
	inMemory(t, []string{"dead", "one", "two"}, func(w *pipedReplica) {
		open = make(chan struct{}) // created inside the bubble
		_ = w.origins["dead"].network.Close()
		w.origins["two"].answers(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/api/v1/configmaps" {
				select {
				case <-open:
				case <-r.Context().Done():
				}
			}
			return false
		})
	}, func(t *testing.T, w *pipedReplica) {
		if code, _, body := w.get("/readyz"); code != http.StatusInternalServerError {
			t.Errorf("before anything is read: %d %s", code, body)
		}
		time.Sleep(3 * time.Second)
		for _, path := range []string{"/readyz", "/fleet/readyz"} {
			want := "[+]directory ok\n[-]clusters failed: reason withheld\nreadyz check failed\n"
			if code, _, body := w.get(path); code != http.StatusInternalServerError || body != want {
				t.Errorf("%s before two is read: %d %s", path, code, body)
			}
		}
		for _, path := range []string{"/readyz?verbose", "/fleet/readyz?verbose"} {
			code, _, body := w.get(path)
			if code != http.StatusInternalServerError || !strings.Contains(body, "awaiting two (0 of 1 resources)") ||
				!strings.Contains(body, "unreachable dead") || !strings.Contains(body, "[+]directory ok") {
				t.Errorf("%s before two is read: %d %s", path, code, body)
			}
		}
		if code, _, _ := w.get("/livez"); code != http.StatusOK {
			t.Errorf("livez is %d", code)
		}
		close(open)
		time.Sleep(3 * time.Second)
		for range 2 {
			if code, _, body := w.get("/readyz"); code != http.StatusOK || body != "ok" {
				t.Errorf("when all that can be reached are read: %d %s", code, body)
			}
			if code, _, body := w.get("/readyz?verbose"); code != http.StatusOK ||
				!strings.Contains(body, "2 of 3 synced, unreachable dead") {
				t.Errorf("verbose: %d %s", code, body)
			}
			_ = w.origins["one"].network.Close() // the copy stays readable
			time.Sleep(time.Minute)
		}
	})
}

// A replica without clusters is ready, and does not make clients wait for one.
func TestReady_withoutClusters(t *testing.T) {
	inMemory(t, nil, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(time.Second)
		if code, _, body := w.get("/readyz"); code != http.StatusOK {
			t.Errorf("a replica of no clusters: %d %s", code, body)
		}
		if code, h, body := w.get("/fleet/api"); code != http.StatusServiceUnavailable || h.Get("Retry-After") != "" {
			t.Errorf("the fleet of no clusters: %d %v %s", code, h, body)
		}
	})
}

// The response for an unreachable cluster has the cause. It has a Retry-After only while
// a cluster is being tried for the first time, because clients repeat a request as long
// as there is one.
func TestCluster_unreachableSaysWhy(t *testing.T) {
	var silence chan struct{}
	inMemory(t, []string{"one", "refused", "silent", "unauthorized"}, func(w *pipedReplica) {
		silence = make(chan struct{})
		_ = w.origins["refused"].network.Close()
		w.origins["unauthorized"].answers(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
			return true
		})
		w.origins["silent"].answers(func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-silence:
			case <-r.Context().Done():
			}
			return true
		})
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(5 * time.Second)
		for _, c := range []struct{ path, want, retry string }{
			{"/clusters/refused/api", "connection refused", ""},
			{"/clusters/refused/api/v1/configmaps", "connection refused", ""},
			{"/clusters/refused/openapi/v2", "connection refused", ""},
			{"/clusters/unauthorized/apis", "Unauthorized", ""},
			{"/clusters/silent/apis", "has not answered yet", "1"}, // it is being tried
			{"/fleet/api/v1/namespaces/shop/configmaps/none", "connection refused", "1"},
			{"/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster%3Drefused", "connection refused", ""},
		} {
			code, h, body := w.get(c.path)
			s := statusIn(t, body)
			if code != http.StatusServiceUnavailable || !strings.Contains(s.Message, c.want) ||
				h.Get("Retry-After") != c.retry ||
				(s.Details != nil && s.Details.RetryAfterSeconds > 0) != (c.retry != "") {
				t.Errorf("%s: %d, Retry-After %q: %s", c.path, code, h.Get("Retry-After"), body)
			}
			if strings.HasPrefix(c.path, "/clusters/") && !strings.Contains(h.Get("Warning"), c.want) {
				t.Errorf("%s: kubectl does not show the cause, which is not in the warning %q", c.path,
					h.Get("Warning"))
			}
		}
		if code, _, body := w.get("/clusters/refused/readyz"); code != http.StatusInternalServerError ||
			!strings.Contains(body, "connection refused") {
			t.Errorf("readyz of the cluster: %d %s", code, body)
		}
		close(silence)
	})
}

// For a resource that the cluster refuses to send, the response does not claim that it is
// being read.
func TestCluster_unreadResourceSaysWhy(t *testing.T) {
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		w.origins["one"].answers(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/api/v1/configmaps" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"configmaps is forbidden: User \"x\" cannot list","reason":"Forbidden","code":403}`)
			return true
		})
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		code, h, body := w.get("/clusters/one/api/v1/configmaps")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "cannot list") ||
			h.Get("Retry-After") != "" {
			t.Errorf("%d %v %s", code, h, body)
		}
	})
}

// A client that requests a resource that is not mirrored receives the reason, and a
// client that lists all resources does not see it.
func TestUnmirrored_saysHow(t *testing.T) {
	inMemory(t, []string{"one", "two"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, root := range []string{"/clusters/one", "/fleet"} {
			for _, path := range []string{
				"/api/v1/secrets", "/api/v1/namespaces/shop/secrets", "/api/v1/namespaces/shop/secrets/x",
				"/api/v1/secrets?watch=1",
			} {
				code, _, body := w.get(root + path)
				if s := statusIn(t, body); code != http.StatusForbidden ||
					!strings.Contains(s.Message, "secrets is not mirrored by this replica") ||
					!strings.Contains(s.Message, "--resources") {
					t.Errorf("%s%s: %d %s", root, path, code, body)
				}
			}
			if code, _, _ := w.get(root + "/api/v1/nothings"); code != http.StatusNotFound {
				t.Errorf("%s: a resource that the cluster does not have: %d", root, code)
			}
			resp, err := w.client.Post("http://replica"+root+"/api/v1/namespaces/shop/secrets", "application/json",
				strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s: a write: %s", root, resp.Status)
			}
			_, _, body := w.get(root + "/api/v1")
			var list metav1.APIResourceList
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range list.APIResources {
				got = append(got, fmt.Sprintf("%s %s %v %v", r.Name, r.Kind, r.Verbs, r.Categories))
			}
			if want := []string{
				"configmaps ConfigMap [get list watch] [all]", "secrets Secret [] []",
			}; !slices.Equal(got, want) {
				t.Errorf("%s/api/v1 has %q, want %q", root, got, want)
			}
		}
	})
}

// The warnings about a fleet of stale clusters are few.
func TestFleet_boundsWarnings(t *testing.T) {
	var names []string
	for i := range 15 {
		names = append(names, fmt.Sprintf("cluster-%02d", i))
	}
	inMemory(t, append(names, "dead"), func(w *pipedReplica) {
		_ = w.origins["dead"].network.Close()
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, name := range names {
			w.origins[name].answers(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w,
					`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+strings.Repeat("x", 8<<10)+
						`","reason":"InternalError","code":500}`)
				return true
			})
			w.origins[name].network.cut()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		code, h, body := w.get("/fleet/api/v1/configmaps")
		all := h.Values("Warning")
		if code != http.StatusOK || len(all) != warning.Limit+2 || len(strings.Join(all, "")) > 4<<10 ||
			!strings.Contains(strings.Join(all, ""), "5 more clusters are stale") {
			t.Errorf("%d: %d warnings of %d bytes: %.500q %.100s", code, len(all), len(strings.Join(all, "")), all,
				body)
		}
		if _, h, _ := w.get("/clusters/cluster-00/api/v1/configmaps"); len(h.Get("Warning")) > 270 ||
			!strings.Contains(h.Get("Warning"), "stale") {
			t.Errorf("of one cluster: %q", h.Get("Warning"))
		}
		if _, _, body := w.get("/clusters"); len(body) > 24<<10 {
			t.Errorf("the list of clusters has %d bytes", len(body))
		}
	})
}

// Only the headers of an API server reach the client from a cluster's own response.
func TestProxy_passesKnownHeaders(t *testing.T) {
	var code int
	var says http.Header
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		w.origins["one"].answers(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.RawQuery, "mine") {
				return false
			}
			for name, values := range says {
				w.Header()[name] = values
			}
			w.WriteHeader(code)
			if code != http.StatusNotModified {
				_, _ = io.WriteString(w, "<script>alert(1)</script>")
			}
			return true
		})
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, c := range []struct {
			contentType string
			code, want  int
		}{
			{"application/json", 200, 200},
			{"application/json;stream=watch", 200, 200},
			{"application/vnd.kubernetes.protobuf;stream=watch", 200, 200},
			{"application/yaml", 404, 404},
			{"text/plain; charset=utf-8", 503, 503},
			{"", 304, 304},
			{"text/html", 200, 502},
			{"text/html; charset=utf-8", 503, 502},
			{"image/svg+xml", 200, 502},
			{"application/json, text/html", 200, 502},
			{"", 200, 502},
			{"application/json", 302, 502},
		} {
			code = c.code
			says = http.Header{
				"Content-Type": {c.contentType}, "Retry-After": {"7"}, "Audit-Id": {"a-b-c"}, "Etag": {`"x"`},
				"Cache-Control": {"no-store"},
				"Warning": append(slices.Repeat([]string{`299 - "` + strings.Repeat("x", 1000) + `"`}, 50),
					"not a warning"),
				"Set-Cookie": {"a=b"}, "Www-Authenticate": {"Basic"}, "Location": {"https://elsewhere"},
				"Access-Control-Allow-Origin": {"*"},
				"Strict-Transport-Security":   {"max-age=1"}, "Content-Security-Policy": {"default-src *"},
				"X-Content-Type-Options": {"sniff"}, "Refresh": {"0; url=https://elsewhere"},
			}
			if c.contentType == "" {
				says["Content-Type"] = nil // net/http must not guess
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				"http://replica/clusters/one/api/v1/configmaps?labelSelector=mine&watershedRead=consistent",
				http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client.Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			h := resp.Header
			if resp.StatusCode != c.want || h.Get("X-Content-Type-Options") != "nosniff" ||
				c.want == 502 && strings.Contains(string(body), "<script>") {
				t.Errorf("%d %q: %s %v %s", c.code, c.contentType, resp.Status, h, body)
			}
			for _, name := range []string{
				"Set-Cookie", "Www-Authenticate", "Location", "Access-Control-Allow-Origin",
				"Strict-Transport-Security", "Content-Security-Policy", "Refresh",
			} {
				if h.Get(name) != "" {
					t.Errorf("%d %q: the client gets %s", c.code, c.contentType, name)
				}
			}
			if c.want == http.StatusBadGateway {
				continue
			}
			if h.Get("Retry-After") != "7" || h.Get("Audit-Id") != "a-b-c" || h.Get("Etag") != `"x"` ||
				h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != c.contentType {
				t.Errorf("%d %q: the client gets %v", c.code, c.contentType, h)
			}
			if all := h.Values("Warning"); len(all) != warning.Limit || len(all[0]) > 270 {
				t.Errorf("%d warnings, the first has %d bytes", len(all), len(all[0]))
			}
		}
	})
}
