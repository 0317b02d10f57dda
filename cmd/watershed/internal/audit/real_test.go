// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// policy makes kube-apiserver record what a replica records.
const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// TestReal has one cluster for several tests.
func TestReal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	events := filepath.Join(dir, "audit.log")
	k := kubetest.Start(t, &kubetest.Options{
		Name: "a", Users: []kubetest.User{{Name: "ann", Groups: []string{"dev"}}, {Name: "bob"}},
		APIServerArgs: []string{
			"--audit-log-path=" + events, "--audit-policy-file=" + filepath.Join(dir, "policy.yaml"),
		},
	})
	reads := []string{"get", "list", "watch"}
	if err := k.Grant(t.Context(), "ann", "", rbacv1.PolicyRule{
		Verbs:     reads,
		APIGroups: []string{""},
		Resources: []string{"configmaps", "secrets"},
	},
		rbacv1.PolicyRule{
			Verbs:         []string{"impersonate"},
			APIGroups:     []string{""},
			Resources:     []string{"users"},
			ResourceNames: []string{"bob"},
		}); err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(k.Config())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
		StringData: map[string]string{"password": secretMarker},
	}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("events", func(t *testing.T) { compareEvents(t, k, events) })
	t.Run("secrets", func(t *testing.T) { checkSecrets(t, k) })
}

// compareEvents sends requests to the cluster and to the replica. Where the values should be
// equal, the events are.
func compareEvents(t *testing.T, k *kubetest.Cluster, events string) {
	w := startAudited(t, []string{"configmaps", "secrets", "nodes"}, fleet.Entry{Name: "a", Config: k.Config()})
	direct := bareClient(t, k.Config())
	ann := k.UserConfig("ann").BearerToken
	for i, c := range []struct{ path, token, as string }{
		{"/api/v1/namespaces/default/configmaps?limit=5", ann, ""},
		{"/api/v1/namespaces/default/secrets/x", ann, ""},
		{"/api/v1/namespaces/default/configmaps/none", ann, ""},
		{"/api/v1/namespaces/default", ann, ""},
		{"/api/v1/configmaps?watch=1&timeoutSeconds=1", ann, ""},
		{"/api/v1/nodes?watch=1", ann, ""},
		{"/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dx", ann, ""},
		{"/api/v1/nodes/n/status", ann, ""},
		{"/api/v1/configmaps", ann, "bob"},
		{"/api/v1/configmaps", ann, "eve"},
		{"/api", ann, ""}, // unlike for /version, only one binding allows it
		{"/openapi/v3?x=%20y", ann, ""},
		{"/apis/apps/v1/deployments", k.UserConfig("bob").BearerToken, ""},
	} {
		agent := fmt.Sprintf("test/%d", i)
		header := http.Header{"User-Agent": {agent}, "Authorization": {"Bearer " + c.token}}
		if c.as != "" {
			header.Set("Impersonate-User", c.as)
		}
		want, _ := send(t, direct, k.URL()+c.path, header)
		got, body := send(t, w.Client(), w.URL+"/clusters/a"+c.path, header)
		if got != want {
			t.Errorf("%s: code %d, want %d: %s", c.path, got, want, body)
		}
		n := 1
		if strings.Contains(c.path, "watch=1") {
			n = 2
		}
		var ours, theirs []map[string]any
		expect.Soon(t, c.path, func() bool {
			ours, theirs = eventsOf(t, w.events, agent), eventsOf(t, events, agent)
			return len(ours) == n && len(theirs) == n
		})
		if diff := cmp.Diff(comparable(theirs, ""), comparable(ours, "/clusters/a")); diff != "" {
			t.Errorf("%s: -kube-apiserver +replica\n%s", c.path, diff)
		}
		if n == 2 && ours[0]["auditID"] != ours[1]["auditID"] {
			t.Errorf("%s: the events of a watch have the IDs %v and %v", c.path, ours[0]["auditID"], ours[1]["auditID"])
		}
	}
	if is := w.log.Stats(); is.Dropped != 0 {
		t.Errorf("stats are %+v", is)
	}
}

// comparable returns events with the values that should be equal.
func comparable(events []map[string]any, prefix string) []map[string]any {
	for _, e := range events {
		for _, name := range []string{"auditID", "requestReceivedTimestamp", "stageTimestamp", "sourceIPs"} {
			if e[name] == nil {
				e[name+" is missing"] = true
			}
			delete(e, name)
		}
		e["requestURI"] = strings.TrimPrefix(e["requestURI"].(string), prefix)
		status := e["responseStatus"].(map[string]any)
		// Messages and details are not recorded: they repeat what the client has sent.
		delete(status, "metadata")
		delete(status, "message")
		delete(status, "details")
		if annotations, _ := e["annotations"].(map[string]any); annotations != nil {
			if delete(annotations, "watershed.dev/cluster"); len(annotations) == 0 {
				delete(e, "annotations")
			}
		}
	}
	return events
}

// send sends a request, and returns the code and the body.
func send(t *testing.T, client *http.Client, url string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	if method := header.Get("Method"); method != "" {
		r.Method = method
		r.Header.Del("Method")
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err.Error() // the server has ended the connection
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, fmt.Sprint(resp.Header) + string(body)
}

const (
	secretMarker = "marker-in-a-secret"
	tokenMarker  = "marker-of-a-stranger"
	configMarker = "marker-in-a-kubeconfig"
)

// checkSecrets provokes errors of every kind with credentials, at log level Debug. No
// credential and no content of an object is in the log, in a response that is an error, in
// the audit log, or in the profile of goroutines.
func checkSecrets(t *testing.T, k *kubetest.Cluster) {
	dead := &rest.Config{
		Host:            "https://user:" + configMarker + "@127.0.0.1:1",
		BearerToken:     configMarker,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	w := startAudited(t, []string{"configmaps", "secrets"},
		fleet.Entry{Name: "a", Config: k.Config()}, fleet.Entry{Name: "dead", Config: dead})
	ann, bob := k.UserConfig("ann").BearerToken, k.UserConfig("bob").BearerToken
	markers := []string{
		secretMarker, base64.StdEncoding.EncodeToString([]byte(secretMarker)), tokenMarker, configMarker, owner, ann,
		bob, k.Config().BearerToken,
	}
	find := func(where, text string) {
		t.Helper()
		for _, marker := range markers {
			if at := strings.Index(text, marker); marker != "" && at >= 0 {
				t.Errorf("%s has %q: %q", where, marker, text[max(0, at-200):min(len(text), at+len(marker)+50)])
			}
		}
	}
	try := func(want int, path, token string, header http.Header) {
		t.Helper()
		h := http.Header{}
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
		for name, values := range header {
			h[name] = values
		}
		code, body := send(t, w.Client(), w.URL+path, h)
		if code != want {
			t.Errorf("%s: code %d, want %d: %s", path, code, want, body)
		}
		find(path, body)
	}
	const secret, secrets, maps = "/clusters/a/api/v1/namespaces/default/secrets/x", "/clusters/a/api/v1/secrets",
		"/clusters/a/api/v1/configmaps"
	if code, body := send(t, w.Client(), w.URL+secret,
		http.Header{"Authorization": {"Bearer " + ann}}); code != http.StatusOK || !strings.Contains(body, markers[1]) {
		t.Fatalf("the Secret is not served: %d %s", code, body)
	}
	socket := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(tokenMarker))
	markers = append(markers, socket)
	try(401, secret, tokenMarker, nil)
	try(401, secret+"?access_token="+ann, "", nil)
	try(401, secret, "", http.Header{
		"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+tokenMarker))},
	})
	try(401, secret, "", http.Header{"Sec-Websocket-Protocol": {socket}})
	try(401, "/fleet/api/v1/secrets", tokenMarker, nil)
	try(403, secret, bob, nil)
	try(403, secrets+"?token="+bob, bob, nil)
	try(403, secret, ann, http.Header{"Impersonate-User": {"eve"}})
	try(404, "/clusters/a/api/v1/namespaces/default/secrets/none", ann, nil)
	try(400, secrets+"?labelSelector=%3D%3D", ann, nil)
	try(400, secrets+"?continue=nonsense&limit=1", ann, nil)
	try(406, secrets, ann, http.Header{"Accept": {"text/html"}})
	try(503, "/clusters/dead/api/v1/secrets", tokenMarker, nil)
	try(503, "/clusters/dead/api/v1/configmaps", tokenMarker, nil) // logged at level Debug
	try(503, "/clusters/dead/api/v1/secrets", owner, nil)
	try(0, secret+"?panic", ann, nil)
	try(200, "/clusters", owner, nil)
	try(405, secret, owner, http.Header{"Method": {http.MethodDelete}})

	// Profiles are taken while requests are being answered.
	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+maps+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch.Header.Set("Authorization", "Bearer "+ann)
	resp, err := w.Client().Do(watch)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, debug := range []int{1, 2} {
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, debug); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(profile.String(), "replica.(*Server).ServeHTTP") {
			t.Error("the profile has no request")
		}
		find("the profile of goroutines", profile.String())
	}

	expect.Soon(t, "all events", func() bool {
		is := w.log.Stats()
		return is.Pending == 0 && is.Written >= 19
	})
	text, err := os.ReadFile(w.events)
	if err != nil {
		t.Fatal(err)
	}
	events := string(text)
	find("the audit log", events)
	find("the log", w.messages.String())
	for _, want := range []string{
		`"stage":"Panic"`, `"code":401`, `"code":503`, "access_token=REDACTED", "token=REDACTED",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("the audit log has no %s", want)
		}
	}
	for _, want := range []string{"request panicked", "cluster=dead", "level=DEBUG"} {
		if !strings.Contains(w.messages.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, w.messages)
		}
	}
}
