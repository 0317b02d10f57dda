// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// attackUsers are users with rights in cluster a only, except for oidc:cy. Each cluster has
// users of these names, and they are different people.
var attackUsers = []kubetest.User{
	{Name: "ann", Groups: []string{"dev"}},
	{Name: "oidc:cy", Groups: []string{"oidc:dev", "dev"}},
	{Name: "dan"},
	{Name: "eve"},
}

// attackedReplica is a replica of two clusters, of which a is the home cluster.
type attackedReplica struct {
	*guardedReplica
	a, b *kubetest.Cluster
	// bot is a token of a service account of a that may read everything there.
	bot string
}

// TestAttacks tries what a hostile caller would try. Each attack is a test of its own; they
// share two clusters.
func TestAttacks(t *testing.T) {
	w := &attackedReplica{
		a: kubetest.Start(t, &kubetest.Options{Name: "a", Users: attackUsers}),
		b: kubetest.Start(t, &kubetest.Options{Name: "b", Users: attackUsers}),
	}
	for _, k := range []*kubetest.Cluster{w.a, w.b} {
		populate(t, k)
	}
	read := rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{"", "apps"},
		Resources: []string{"*"},
	}
	w.grant(t, w.a, "ann", "", read)
	w.grant(t, w.a, "oidc:cy", "n1", read)
	w.grant(t, w.b, "oidc:cy", "n1", read)
	w.grant(t, w.a, "dan", "n1", rbacv1.PolicyRule{
		Verbs:         []string{"get", "list", "watch"},
		APIGroups:     []string{""},
		Resources:     []string{"configmaps"},
		ResourceNames: []string{"x"},
	})
	w.grant(t, w.a, "eve", "", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{"apps"},
		Resources: []string{"deployments/status"},
	},
		rbacv1.PolicyRule{
			Verbs:         []string{"impersonate"},
			APIGroups:     []string{""},
			Resources:     []string{"users"},
			ResourceNames: []string{"ann"},
		})
	w.bot = serviceAccount(t, w.a, "ci", "bot")
	w.guardedReplica = startGuarded(t, access.Options{
		Owner: ownerToken, Recheck: time.Second,
		Crossing: access.Crossing{Home: "a", Users: []string{"oidc:*"}, Groups: []string{"oidc:*"}},
	}, w.a, w.b)

	for name, attack := range map[string]func(*testing.T, *attackedReplica){
		"a token at another cluster":          attackOtherCluster,
		"an identity of the home at a member": attackCrossing,
		"headers that name a user":            attackHeaders,
		"forms of paths and queries":          attackForms,
		"names by other ways":                 attackNames,
		"continue tokens of others":           attackTokens,
		"encodings":                           attackEncodings,
		"absent and forbidden clusters":       attackAbsence,
		"identities on one connection":        attackConnection,
		"no credentials":                      attackAnonymous,
		"a subresource of all objects":        attackSubresource,
		"impersonation of the past":           attackImpersonation,
		"reviews below /fleet":                attackReviews,
	} {
		t.Run(name, func(t *testing.T) { attack(t, w) })
	}
	t.Run("the time of a refusal", func(t *testing.T) { attackTiming(t, w) })
	t.Run("a right that is lost", func(t *testing.T) { attackLostRight(t, w) })
	t.Run("a name that another cluster takes", func(t *testing.T) { attackTakenName(t, w) })
	t.Run("the limit of unknown tokens", func(t *testing.T) { attackLimit(t, w) })
}

func (w *attackedReplica) grant(t *testing.T, k *kubetest.Cluster, user, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	if err := k.Grant(t.Context(), user, namespace, rules...); err != nil {
		t.Fatal(err)
	}
}

// serviceAccount creates an account that may read everything, and returns a token of it.
func serviceAccount(t *testing.T, k *kubetest.Cluster, namespace, name string) string {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(k.Config())
	ctx := t.Context()
	if _, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}, RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin",
		},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return tokenOf(t, k, namespace, name)
}

func (w *attackedReplica) token(k *kubetest.Cluster, user string) string {
	return k.UserConfig(user).BearerToken
}

// get sends a request with a token.
func (w *attackedReplica) get(t *testing.T, token, path string, header ...string) *answer {
	t.Helper()
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = append(h[header[i]], header[i+1])
	}
	client := w.Client()
	if len(h["Connection"]) > 0 {
		client = w.oldClient(t) // HTTP/2 does not have the header
	}
	got, err := ask(t.Context(), client, w.URL+path, token, h)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return got
}

// expectCode checks the code of a response.
func (w *attackedReplica) expectCode(t *testing.T, want int, token, path string, header ...string) *answer {
	t.Helper()
	got := w.get(t, token, path, header...)
	if got.code != want {
		t.Errorf("%s %v: %d %.300s, want %d", path, header, got.code, got.body, want)
	}
	return got
}

const configmaps = "/api/v1/namespaces/n1/configmaps"

// The token of a user of a is worth nothing at b, although b has a user of that name, and
// although a has just accepted it.
func attackOtherCluster(t *testing.T, w *attackedReplica) {
	ann := w.token(w.a, "ann")
	for range 3 {
		w.expectCode(t, http.StatusOK, ann, "/clusters/a"+configmaps)
		w.expectCode(t, http.StatusUnauthorized, ann, "/clusters/b"+configmaps)
		w.expectCode(t, http.StatusUnauthorized, w.bot, "/clusters/b"+configmaps)
	}
	w.expectCode(t, http.StatusUnauthorized, w.token(w.b, "oidc:cy"), "/fleet"+configmaps)
	w.expectCode(t, http.StatusForbidden, w.token(w.b, "ann"), "/clusters/b"+configmaps)
}

// Below /fleet, an identity of the home cluster keeps its name elsewhere only if the operator
// allows that. A service account never does.
func attackCrossing(t *testing.T, w *attackedReplica) {
	clusters := func(token, path string) []string {
		var list struct {
			Items []metav1.PartialObjectMetadata
		}
		got := w.expectCode(t, http.StatusOK, token, path)
		if err := json.Unmarshal(got.body, &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range list.Items {
			if name := o.Annotations["watershed.dev/cluster"]; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	for user, want := range map[string]string{
		w.token(w.a, "ann"): "[a]", w.token(w.a, "oidc:cy"): "[a b]", w.bot: "[a]", ownerToken: "[a b]",
	} {
		if got := fmt.Sprint(clusters(user, "/fleet"+configmaps)); got != want {
			t.Errorf("sees the clusters %s, want %s", got, want)
		}
	}
	// The account has rights in b only under the name that b cannot give to its own users.
	w.grant(t, w.b, "watershed:a:ci:bot", "n1", rbacv1.PolicyRule{
		Verbs:     []string{"list", "watch"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	})
	expect.Soon(t, "the account has the right that b has given to it", func() bool {
		return fmt.Sprint(clusters(w.bot, "/fleet"+configmaps)) == "[a b]"
	})
	w.expectCode(t, http.StatusForbidden, w.token(w.a, "dan"), "/fleet"+configmaps)
}

func attackHeaders(t *testing.T, w *attackedReplica) {
	dan := w.token(w.a, "dan")
	for _, header := range [][]string{
		{"X-Remote-User", "ann"}, {
			"X-Remote-User", "system:admin", "X-Remote-Group", "system:masters",
		}, {"X-Remote-Extra-Scopes", "all"},
		{"Connection", "Authorization"}, {"Connection", "X-Remote-User", "X-Remote-User", "ann"},
	} {
		w.expectCode(t, http.StatusForbidden, dan, "/clusters/a"+configmaps, header...)
	}
	w.expectCode(t, http.StatusUnauthorized, "", "/clusters/a"+configmaps, "X-Remote-User", "ann", "X-Remote-Group",
		"system:masters")
	for _, header := range [][]string{
		{"Impersonate-User", "ann"}, {"impersonate-user", "ann"}, {"IMPERSONATE-USER", "ann"}, {
			"Impersonate-User", "dan", "Impersonate-User", "ann",
		},
		{"Impersonate-User", "dan", "Impersonate-Group", "system:masters"}, {
			"Impersonate-User", "ann", "Watershed-Read", "consistent",
		},
	} {
		w.expectCode(t, http.StatusForbidden, dan, "/clusters/a"+configmaps, header...)
	}
	w.expectCode(t, http.StatusBadRequest, dan, "/clusters/a"+configmaps, "Impersonate-Group", "system:masters")
	w.expectCode(t, http.StatusForbidden, w.bot, "/fleet"+configmaps, "Impersonate-User", "oidc:cy")
	// The cluster allows it to its administrator, and the request has the rights of the other.
	w.expectCode(t, http.StatusOK, w.bot, "/clusters/a"+configmaps, "Impersonate-User", "ann")
	w.expectCode(t, http.StatusForbidden, w.bot, "/clusters/a"+configmaps, "Impersonate-User", "dan")
	// A consistent read is decided like any other, and its token does not reach the cluster.
	w.expectCode(t, http.StatusForbidden, dan, "/clusters/a"+configmaps, "Watershed-Read", "consistent")
	w.expectCode(t, http.StatusOK, w.token(w.a, "ann"), "/clusters/a"+configmaps, "Watershed-Read", "consistent",
		"Connection", "Authorization")
}

// dan may read the ConfigMap x only. Every form of a request for more is refused, or is not a
// request for a resource.
func attackForms(t *testing.T, w *attackedReplica) {
	dan := w.token(w.a, "dan")
	for _, path := range []string{
		configmaps, configmaps + "?watch", configmaps + "?watch=", configmaps + "?watch=1",
		configmaps + "?watch=true&watch=0", configmaps + "?watch=0&watch=1",
		configmaps + "/y", configmaps + "/y?fieldSelector=metadata.name%3Dx",
		configmaps + "?fieldSelector=metadata.name%3Dy&fieldSelector=metadata.name%3Dx",
		"/api/v1/watch/namespaces/n1/configmaps", "/api/v1/watch/namespaces/n1/configmaps/y",
		"/api/v1/namespaces/n2/configmaps/x", "/api/v1/configmaps",
		configmaps + "/x/../y", configmaps + "/x%2F..%2Fy", configmaps + "/x%2Fstatus", configmaps + "//y",
		"//api/v1/namespaces/n1/configmaps",
		"/api/v1//namespaces/n1/configmaps", "/api/v1/namespaces/n1//configmaps",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/n1/clusterroles",
		"/api/v1/namespaces/n1/nodes", "/api/v1/namespaces/n1/namespaces", "/api/v1/proxy/namespaces/n1/configmaps/y",
	} {
		got := w.get(t, dan, "/clusters/a"+path)
		if got.code == http.StatusOK || strings.Contains(string(got.body), `"kind":"ConfigMap`) {
			t.Errorf("%s: %d %.200s", path, got.code, got.body)
		}
	}
	w.expectCode(t, http.StatusOK, dan, "/clusters/a"+configmaps+"/x")
}

// eve may read the status of deployments, and not the deployments. A path with an empty name is
// authorized for the status, so it must not be answered with a list.
func attackSubresource(t *testing.T, w *attackedReplica) {
	eve := w.token(w.a, "eve")
	for _, path := range []string{
		"/apis/apps/v1/namespaces/n1/deployments//status", "/apis/apps/v1/namespaces/n1/deployments//status?watch=1",
		"/apis/apps/v1/namespaces/n1/deployments//status?limit=1", "/apis/apps/v1/namespaces/n1/deployments//status/",
	} {
		direct, err := ask(t.Context(), w.clients["a"], w.a.URL()+path, eve, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := w.get(t, eve, "/clusters/a"+path)
		if got.code != direct.code || got.code != http.StatusBadRequest {
			t.Errorf("%s: %d %.200s, and from kube-apiserver %d %.200s", path, got.code, got.body, direct.code,
				direct.body)
		}
	}
	w.expectCode(t, http.StatusForbidden, eve, "/clusters/a/apis/apps/v1/namespaces/n1/deployments")
}

// eve may be ann, and ann may be nobody else. The right to impersonate is asked for once, also if
// parts of the answer need decisions of their own.
func attackImpersonation(t *testing.T, w *attackedReplica) {
	path := "/clusters/a" + configmaps + "/x?at=1h"
	own := w.get(t, w.token(w.a, "ann"), path)
	got := w.get(t, w.token(w.a, "eve"), path, "Impersonate-User", "ann")
	if got.code != own.code || string(got.body) != string(own.body) || own.code == http.StatusForbidden {
		t.Errorf("eve as ann: %d %.200s, and ann %d %.200s", got.code, got.body, own.code, own.body)
	}
	w.expectCode(t, http.StatusForbidden, w.token(w.a, "eve"), path)
	w.expectCode(t, http.StatusForbidden, w.token(w.a, "eve"), path, "Impersonate-User", "dan")
}

// A right to one name opens lists and watches of that name, and no others.
func attackNames(t *testing.T, w *attackedReplica) {
	dan := w.token(w.a, "dan")
	for _, query := range []string{
		"?fieldSelector=metadata.name%3Dx", "?fieldSelector=metadata.name%3Dx&limit=1",
		"?fieldSelector=metadata.name%3Dx,metadata.namespace%3Dn1",
	} {
		got := w.expectCode(t, http.StatusOK, dan, "/clusters/a"+configmaps+query)
		var list corev1.ConfigMapList
		if err := json.Unmarshal(got.body, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != "x" {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	for _, query := range []string{
		"?fieldSelector=metadata.name!%3Dy", "?labelSelector=a", "?limit=1",
		"?fieldSelector=metadata.name%3Dx,metadata.name%3Dy",
	} {
		if got := w.get(t, dan, "/clusters/a"+configmaps+query); got.code == http.StatusOK &&
			strings.Contains(string(got.body), `"name":"y"`) {
			t.Errorf("%s: %.200s", query, got.body)
		}
	}
	w.expectCode(t, http.StatusForbidden, dan, "/clusters/a/apis/apps/v1/namespaces/n1/deployments/deployment-0/scale")
}

// A continue token gives no right. Below /fleet it works for its caller and its list only.
func attackTokens(t *testing.T, w *attackedReplica) {
	ann, bot := w.token(w.a, "ann"), w.bot
	continued := func(token, path string) string {
		var list metav1.PartialObjectMetadataList
		got := w.expectCode(t, http.StatusOK, token, path+"?limit=1")
		if err := json.Unmarshal(got.body, &list); err != nil || list.Continue == "" {
			t.Fatalf("%s: no token in %.200s", path, got.body)
		}
		return list.Continue
	}
	// Below /clusters a token gives nobody more than the list at its version.
	list := "/clusters/a" + configmaps
	token := continued(ann, list)
	w.expectCode(t, http.StatusOK, ann, list+"?limit=1&continue="+token)
	version := versionOf(t, token)
	for _, other := range []struct{ user, path string }{
		{bot, list}, {ann, "/clusters/a/api/v1/namespaces/n2/configmaps"}, {"nobody", list},
		{w.token(w.a, "dan"), list}, {w.token(w.a, "eve"), list}, {ann, "/clusters/b" + configmaps},
		{ann, "/clusters/a/api/v1/namespaces/n1/pods"}, {ownerToken, "/clusters/b" + configmaps},
	} {
		got := w.get(t, other.user, other.path+"?limit=1&continue="+token)
		without := w.get(t, other.user, other.path+"?resourceVersionMatch=Exact&resourceVersion="+version)
		if (got.code == http.StatusOK) != (without.code == http.StatusOK) {
			t.Errorf("%s: %d %.200s, without the token %d", other.path, got.code, got.body, without.code)
		}
	}
	w.expectCode(t, http.StatusUnauthorized, "nobody", list+"?limit=1&continue="+token)
	w.expectCode(t, http.StatusForbidden, w.token(w.a, "dan"), list+"?limit=1&continue="+token)
	w.expectCode(t, http.StatusBadRequest, w.token(w.a, "oidc:cy"), "/fleet"+configmaps+"?limit=1&continue="+token)
	fleet := continued(w.token(w.a, "oidc:cy"), "/fleet"+configmaps)
	for _, user := range []string{ann, bot, ownerToken} {
		if got := w.get(t, user, "/fleet"+configmaps+"?limit=1&continue="+fleet); got.code == http.StatusOK {
			t.Errorf("a token of another caller: %d %.200s", got.code, got.body)
		}
	}
}

// versionOf returns the version in a continue token.
func versionOf(t *testing.T, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	var fields struct {
		Version int64 `json:"rv"`
	}
	if err != nil || json.Unmarshal(raw, &fields) != nil {
		t.Fatalf("%s is not a token", token)
	}
	return strconv.FormatInt(fields.Version, 10)
}

// The decision does not depend on the form of the response.
func attackEncodings(t *testing.T, w *attackedReplica) {
	for _, accept := range []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	} {
		for _, query := range []string{
			"", "?watch=1",
			"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "?limit=1",
		} {
			w.expectCode(t, http.StatusForbidden, w.token(w.a, "dan"), "/clusters/a"+configmaps+query, "Accept", accept,
				"Accept-Encoding", "gzip")
		}
	}
	for _, path := range []string{
		"/fleet" + configmaps, "/fleet" + configmaps + "/y", "/fleet" + configmaps + "?watch=1",
	} {
		w.expectCode(t, http.StatusForbidden, w.token(w.a, "dan"), path)
	}
}

// A caller cannot find out whether a cluster exists that does not accept the credentials.
func attackAbsence(t *testing.T, w *attackedReplica) {
	ann := w.token(w.a, "ann")
	for _, path := range []string{
		"/api/v1/pods", "/version", "/", "/healthz", "/readyz?verbose", "/openapi/v3", "/apis", "/api/v1/pods?watch=1",
		"/none",
	} {
		forbidden, absent := w.get(t, ann, "/clusters/b"+path), w.get(t, ann, "/clusters/c"+path)
		for _, h := range []http.Header{forbidden.header, absent.header} {
			h.Del("Date")
		}
		if forbidden.code != http.StatusUnauthorized || absent.code != forbidden.code ||
			string(forbidden.body) != string(absent.body) || fmt.Sprint(forbidden.header) != fmt.Sprint(absent.header) {
			t.Errorf("%s: a forbidden cluster is %d %s %v, an absent one %d %s %v", path, forbidden.code,
				forbidden.body, forbidden.header, absent.code, absent.body, absent.header)
		}
	}
	for _, path := range []string{
		"/clusters", "/readyz?verbose", "/fleet/api", "/fleet/apis", "/fleet/openapi/v3", "/fleet/readyz?verbose",
	} {
		if got := w.expectCode(t, http.StatusOK, ann, path); strings.Contains(string(got.body), `"b"`) ||
			strings.Contains(string(got.body), "b (") {
			t.Errorf("%s names the other cluster: %s", path, got.body)
		}
	}
}

// Two identities on one HTTP/2 connection do not mix.
func attackConnection(t *testing.T, w *attackedReplica) {
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() {
			user, want := w.token(w.a, "ann"), http.StatusOK
			if i%2 == 1 {
				user, want = w.token(w.a, "dan"), http.StatusForbidden
			}
			w.expectCode(t, want, user, "/clusters/a"+configmaps)
		})
	}
	running.Wait()
}

func attackAnonymous(t *testing.T, w *attackedReplica) {
	for _, path := range []string{
		"/", "/api", "/version", "/clusters", "/clusters/a/version", "/fleet/api", "/clusters/a" + configmaps,
		"/readyz?verbose", "/metrics", "/debug/pprof/", "/clusters/a/healthz",
	} {
		for _, token := range []string{"", "none", "a.b.c", strings.Repeat("x", 20000), "two words"} {
			if got := w.get(t, token, path); got.code != http.StatusUnauthorized &&
				got.code != http.StatusTooManyRequests {
				t.Errorf("%s with token %.10q: %d %.200s", path, token, got.code, got.body)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		if got := w.expectCode(t, http.StatusOK, "", path); string(got.body) != "ok" {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}

// A watch ends when its right is lost: by a change of a role, of a binding, and with the
// account. It ends without an event, and the next request is refused.
func attackLostRight(t *testing.T, w *attackedReplica) {
	follow := func(token, path string) (ended chan string) {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
		resp, err := w.Client().Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", path, resp, err)
		}
		ended = make(chan string, 1)
		go func() {
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				body = append(body, err.Error()...)
			}
			ended <- string(body)
		}()
		return ended
	}
	expectEnd := func(what string, within time.Duration, ended chan string) {
		t.Helper()
		began := time.Now()
		select {
		case body := <-ended:
			if strings.Contains(body, `"ERROR"`) {
				t.Errorf("%s: the watch ends with an error event: %.300s", what, body)
			}
			t.Logf("%s: the watch ends after %s", what, time.Since(began).Round(time.Millisecond))
		case <-time.After(within):
			t.Errorf("%s: the watch goes on after %s", what, within)
		}
	}
	const version = "&resourceVersion=0"
	cy := w.token(w.a, "oidc:cy")
	one, all := follow(cy, "/clusters/a"+configmaps+"?watch=1"+version),
		follow(cy, "/fleet"+configmaps+"?watch=1"+version)
	if err := w.a.Revoke(t.Context(), "oidc:cy"); err != nil {
		t.Fatal(err)
	}
	expectEnd("a binding is deleted", 2*time.Second, one)
	expectEnd("a binding is deleted, fleet", 3*time.Second, all)
	w.expectCode(t, http.StatusForbidden, cy, "/clusters/a"+configmaps)

	ended := follow(w.bot, "/clusters/a"+configmaps+"?watch=1"+version)
	client := kubernetes.NewForConfigOrDie(w.a.Config())
	if err := client.CoreV1().ServiceAccounts("ci").Delete(t.Context(), "bot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectEnd("the account is deleted", 25*time.Second, ended)
	w.expectCode(t, http.StatusUnauthorized, w.bot, "/clusters/a"+configmaps)
}

// tokenOf requests a token of a service account.
func tokenOf(t *testing.T, k *kubetest.Cluster, namespace, name string) string {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(k.Config())
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, newTokenRequest(),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}
