// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/replica"
)

var update = flag.Bool("update", false, "record the present events in testdata/events.jsonl")

// newHandler returns a replica without clusters. Admit authenticates and decides.
func newHandler(
	t testing.TB, admit func(*http.Request, *access.Call) error,
	audit func(*http.Request, *replica.Request, replica.Outcome),
) http.Handler {
	t.Helper()
	clusters, err := directory.NewStatic()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(clusters, &fleet.Options{History: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	control, err := access.New(f, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := replica.New(f, &replica.Options{
		Admit: func(r *http.Request, _ *replica.Request) (func(), error) {
			return func() {}, admit(r, access.CallOf(r))
		},
		Authorize: func(*http.Request, *replica.Request) (*replica.Access, error) { return nil, nil },
		Audit:     audit,
	})
	if err != nil {
		t.Fatal(err)
	}
	return control.Handler(handler)
}

// request returns a request of a client.
func request(target string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RequestURI = target
	u, err := r.URL.Parse(target)
	if err != nil {
		panic(err)
	}
	r.URL = u
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("User-Agent", "kubectl/v1.37.1")
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	r.Header.Set("Authorization", "Bearer marker-in-header")
	return r
}

// linesOf returns the audit lines of a request. IDs and times are always the same.
func linesOf(t testing.TB, r *http.Request, admit func(*http.Request, *access.Call) error) []string {
	t.Helper()
	l, err := Open(Options{Path: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.close()
	l.run = 0x0123456789abcdef
	began := time.Date(2026, 3, 4, 5, 6, 7, 8009000, time.FixedZone("", 3600))
	handler := newHandler(t, admit, func(r *http.Request, q *replica.Request, o replica.Outcome) {
		o.Number, o.Began, o.Took = 42, began, 1500*time.Microsecond
		l.Audit(r, q, o)
	})
	func() {
		defer func() {
			p := recover()
			if err, _ := p.(error); p != nil && !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
		}()
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}()
	lines, _ := l.take(nil)
	return strings.SplitAfter(strings.TrimSuffix(string(lines), "\n"), "\n")
}

// cases are requests with their callers and decisions.
var cases = []struct {
	name, target string
	admit        func(*http.Request, *access.Call) error
}{
	{"allowed", "/clusters?x=1", func(_ *http.Request, c *access.Call) error {
		c.User = &authenticationv1.UserInfo{
			Username: "ann",
			UID:      "u1",
			Groups:   []string{"dev", "system:authenticated"},
			Extra:    map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}
		c.Decision, c.Reason = "allow", `RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "ann"`
		return nil
	}},
	{"unauthorized", "/clusters/a/api/v1/namespaces/n/pods/p/status?access_token=marker-in-query",
		func(*http.Request, *access.Call) error {
			return apierrors.NewUnauthorized("Unauthorized")
		}},
	{"forbidden", "/clusters/a/apis/apps/v1/namespaces/n/deployments?labelSelector=a%3Db",
		func(_ *http.Request, c *access.Call) error {
			c.User, c.Decision = &authenticationv1.UserInfo{Username: "<bob>"}, "forbid"
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		}},
	{"impersonated", "/fleet/api/v1/nodes", func(_ *http.Request, c *access.Call) error {
		c.User, c.Impersonator = &authenticationv1.UserInfo{Username: "cy"}, &authenticationv1.UserInfo{Username: "ann"}
		return apierrors.NewTooManyRequests("later", 1)
	}},
	{"watch", "/clusters/a/api/v1/pods?watch=1", func(_ *http.Request, c *access.Call) error {
		c.User = &authenticationv1.UserInfo{Username: "ann"}
		return apierrors.NewServiceUnavailable("down")
	}},
	{"panic", "/clusters/a/version", func(*http.Request, *access.Call) error { panic("fault") }},
}

// The events are those in testdata/events.jsonl, which a test of the conformance module
// decodes with the type of kube-apiserver.
func TestEvents(t *testing.T) {
	var got string
	for _, c := range cases {
		for _, line := range linesOf(t, request(c.target), c.admit) {
			got += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	if strings.Contains(got, "marker") || strings.Contains(got, "203.0.113.9") {
		t.Errorf("the events have a credential or an address that the client chose:\n%s", got)
	}
	golden := filepath.Join("testdata", "events.jsonl")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got (go test ./cmd/watershed/internal/audit -update):\n%s", diff)
	}
}

// Values that a client chooses are cut, and the line is valid JSON.
func TestEvents_areBounded(t *testing.T) {
	long := strings.Repeat("ä", 20<<10)
	r := request("/clusters/" + strings.Repeat("c", 5000) + "/api/v1/namespaces/" + strings.Repeat("n", 5000) +
		"/pods/" + strings.Repeat("p", 5000))
	r.Header.Set("User-Agent", long)
	lines := linesOf(t, r, func(_ *http.Request, c *access.Call) error {
		c.User = &authenticationv1.UserInfo{
			Username: long,
			UID:      long,
			Groups:   []string{strings.Repeat("g", 5000), strings.Repeat("h", 5000)},
			Extra:    map[string]authenticationv1.ExtraValue{"k": {long}},
		}
		c.Impersonator, c.Decision, c.Reason = c.User, "allow", long
		return nil
	})
	if len(lines) != 1 || len(lines[0]) > 32<<10 {
		t.Fatalf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
	var e event
	if err := json.Unmarshal([]byte(lines[0]), &e); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]struct {
		text string
		most int
	}{
		"requestURI": {e.RequestURI, maxURI}, "userAgent": {e.UserAgent, maxText},
		"username":  {e.User.Username, maxText},
		"namespace": {e.ObjectRef.Namespace, maxText}, "name": {e.ObjectRef.Name, maxText},
		"cluster": {e.Annotations.Cluster, maxText},
	} {
		if len(got.text) > got.most || len(got.text) < got.most-3 {
			t.Errorf("%s has %d bytes, want %d", name, len(got.text), got.most)
		}
	}
	if len(e.User.Groups) != 1 || len(e.User.Extra) != 0 {
		t.Errorf("%d groups and %d extra values remain", len(e.User.Groups), len(e.User.Extra))
	}
}

func TestAuditID_isAUUID(t *testing.T) {
	if got, want := auditID(0x0123456789abcdef, 42), "01234567-89ab-8def-8000-00000000002a"; got != want {
		t.Errorf("audit ID %s, want %s", got, want)
	}
}

func TestRequestURI_hidesCredentials(t *testing.T) {
	for target, want := range map[string]string{
		"":                                "/",
		"/a%2Fb?x=%20y":                   "/a%2Fb?x=%20y",
		"/a?":                             "/a?",
		"/a?token=s3cr3t":                 "/a?token=REDACTED",
		"/a?x=1&Access_Token=s3cr3t&y":    "/a?x=1&Access_Token=REDACTED&y",
		"/a?%74oken=s3cr3t":               "/a?%74oken=REDACTED",
		"/a?%zztok=s3cr3t":                "/a?%zztok=REDACTED",
		"/a?bearer=s3cr3t;x=2":            "/a?bearer=REDACTED;x=2",
		"/a?x=1;token=s3cr3t":             "/a?x=1;token=REDACTED",
		"/a?token=a=s3cr3t":               "/a?token=REDACTED",
		"/a?q=eyJhbGciOi.eyJzdWIi.s3cr3t": "/a?q=REDACTED",
		"/a?limit=5&continue=eyJ2IjoibWV": "/a?limit=5&continue=eyJ2IjoibWV",
		"https://u:s3cr3t@host/a?b=c":     "/a?b=c",
		"/a?token":                        "/a?token",
		"/a?labelSelector=token%3Dx":      "/a?labelSelector=token%3Dx",
		"/clusters/a/api/v1/secrets?x=y":  "/clusters/a/api/v1/secrets?x=y",
	} {
		r := request(target)
		if got := requestURI(r.URL); got != want && target != "" || strings.Contains(got, "s3cr3t") {
			t.Errorf("%s becomes %s, want %s", target, got, want)
		}
	}
}

// BenchmarkAudit measures an event from the hook into the queue.
func BenchmarkAudit(b *testing.B) {
	l := &Log{}
	r := request("/clusters/a/api/v1/namespaces/default/configmaps?limit=500")
	var q *replica.Request
	user := &authenticationv1.UserInfo{Username: "ann", Groups: []string{"dev", "system:authenticated"}}
	handler := newHandler(b, func(_ *http.Request, c *access.Call) error {
		c.User, c.Decision, c.Reason = user, "allow",
			`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "ann"`
		return nil
	}, func(with *http.Request, of *replica.Request, _ replica.Outcome) { r, q = with, of })
	handler.ServeHTTP(httptest.NewRecorder(), r)
	outcome := replica.Outcome{Status: 200, Began: time.Now(), Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		outcome.Number++
		l.Audit(r, q, outcome)
		l.pending, l.events = l.pending[:0], 0
	}
}
