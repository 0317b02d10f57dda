// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"reflect"
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

// users are the users of the test clusters. Each cluster has all of them, with other rights.
var users = []kubetest.User{
	{Name: "ann", Groups: []string{"dev"}}, {Name: "bob", Groups: []string{"dev", "ops"}},
	{Name: "oidc:cy", Groups: []string{"oidc:dev"}},
	{Name: "dan"}, {Name: "eve", Groups: []string{"system:masters"}}, {Name: "<fay>&co"},
}

const randomRequests = 5000

// TestDifferential sends random requests of random users to the replica and to the API server
// of the addressed cluster, with random rights in each cluster. The decisions are the same,
// and so are the code, the reason, the details and the message of the response.
func TestDifferential(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	a, b := kubetest.Start(t, &kubetest.Options{Name: "a", Users: users}),
		kubetest.Start(t, &kubetest.Options{Name: "b", Users: users})
	for _, k := range []*kubetest.Cluster{a, b} {
		populate(t, k)
		randomRights(t, random, k)
	}
	for _, mode := range []string{"reviewed", "local"} {
		t.Run(mode, func(t *testing.T) {
			opts := access.Options{}
			if mode == "local" {
				opts.Local = func(string) bool { return true }
			}
			w := startGuarded(t, opts, a, b)
			compareAll(t, w, random, randomRequests)
			compareReviews(t, w, random, mode == "local")
			for range 5 {
				follow(t, w, random, mode)
			}
		})
	}
}

// populate creates objects that names in requests refer to.
func populate(t *testing.T, k *kubetest.Cluster) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(k.Config())
	for _, namespace := range []string{"n1", "n2"} {
		_, err := client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"x", "y"} {
			if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.CreateDeployments(t.Context(), "n1", 2, 1); err != nil {
		t.Fatal(err)
	}
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// some returns a few of the values.
func some[T any](random *rand.Rand, from ...T) []T {
	var all []T
	for range 1 + random.IntN(2) {
		all = append(all, pick(random, from...))
	}
	return all
}

// randomRules returns rules about what requests are about.
func randomRules(random *rand.Rand, cluster bool) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range 1 + random.IntN(2) {
		if cluster && random.IntN(5) == 0 {
			rules = append(rules, rbacv1.PolicyRule{
				Verbs:           some(random, "get", "*", "post"),
				NonResourceURLs: some(random, "/metrics", "/logs/*", "/debug/*", "/version"),
			})
			continue
		}
		r := rbacv1.PolicyRule{
			Verbs:     some(random, "get", "list", "watch", "*", "delete"),
			APIGroups: some(random, "", "apps", "*", "batch"),
			Resources: some(random, "pods", "configmaps", "deployments", "deployments/scale", "deployments/status",
				"namespaces", "nodes", "*", "*/status", "pods/*"),
		}
		if random.IntN(4) == 0 {
			r.ResourceNames = some(random, "x", "y", "n1", "deployment-0")
		}
		rules = append(rules, r)
	}
	return rules
}

func randomSubject(random *rand.Rand) rbacv1.Subject {
	if random.IntN(3) == 0 {
		return rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: pick(random, "dev", "ops", "oidc:dev")}
	}
	return rbacv1.Subject{
		Kind: "User", APIGroup: rbacv1.GroupName, Name: pick(random, "ann", "bob", "oidc:cy", "<fay>&co"),
	}
}

// randomRights creates roles and bindings, some of which refer to roles that do not exist.
func randomRights(t *testing.T, random *rand.Rand, k *kubetest.Cluster) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(k.Config()).RbacV1()
	for i := range 4 {
		name := fmt.Sprintf("random-%d", i)
		_, err := client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      randomRules(random, true),
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{"n1", "n2"} {
			if _, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Rules:      randomRules(random, false),
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 12 {
		name := fmt.Sprintf("random-%d", i)
		_, err := client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{randomSubject(random)},
			RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprintf("random-%d", random.IntN(5)),
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{"n1", "n2"} {
			if _, err := client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{randomSubject(random)},
				RoleRef: rbacv1.RoleRef{
					APIGroup: rbacv1.GroupName,
					Kind:     pick(random, "ClusterRole", "Role"),
					Name:     fmt.Sprintf("random-%d", random.IntN(5)),
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// randomRequest returns a path with its query.
func randomRequest(random *rand.Rand) string {
	if random.IntN(12) == 0 {
		return pick(random, "/version", "/api", "/apis", "/apis/apps/v1", "/api/v1", "/openapi/v3", "/metrics",
			"/logs/", "/debug/pprof", "/livez", "/none")
	}
	type kind struct {
		root, resource string
		namespaced     bool
		sub            []string
	}
	k := pick(random,
		kind{"/api/v1", "pods", true, []string{"status"}}, kind{"/api/v1", "configmaps", true, nil}, kind{
			"/apis/apps/v1", "deployments", true, []string{"status", "scale"},
		},
		kind{"/api/v1", "namespaces", false, []string{"status"}}, kind{"/api/v1", "nodes", false, []string{"status"}},
		kind{
			"/apis/rbac.authorization.k8s.io/v1", "clusterroles", false, nil,
		})
	path := k.root
	if k.namespaced && random.IntN(4) > 0 {
		path += "/namespaces/" + pick(random, "n1", "n2", "none")
	}
	path += "/" + k.resource
	if random.IntN(2) == 0 && (!k.namespaced || strings.Contains(path, "/namespaces/")) {
		path += "/" + pick(random, "x", "y", "n1", "deployment-0", "none", "a%3Cb%3E%26c")
		if len(k.sub) > 0 && random.IntN(2) == 0 {
			path += "/" + pick(random, k.sub...)
		}
		return path
	}
	query := url.Values{}
	if random.IntN(3) == 0 {
		query.Set("watch", pick(random, "", "1", "true", "0", "false"))
	}
	if random.IntN(4) == 0 {
		query.Set("fieldSelector",
			pick(random, "metadata.name=x", "metadata.namespace=n1", "metadata.name!=x", "metadata.name=n1"))
	}
	if random.IntN(4) == 0 {
		query.Set("labelSelector", pick(random, "a=b", "a in (b,c)", "!a"))
	}
	if random.IntN(6) == 0 {
		query.Set("limit", "1")
	}
	return path + "?" + query.Encode()
}

// compareAll compares the responses to random requests.
func compareAll(t *testing.T, w *guardedReplica, random *rand.Rand, n int) {
	t.Helper()
	type request struct{ cluster, user, path, as string }
	requests := make(chan request)
	var running sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 8 {
		running.Go(func() {
			for r := range requests {
				code, err := compareOne(t.Context(), w, r.cluster, r.user, r.path, r.as)
				mu.Lock()
				codes[code]++
				mu.Unlock()
				if err != nil {
					t.Errorf("%s of %s as %q at %s: %v", r.path, r.user, r.as, r.cluster, err)
				}
			}
		})
	}
	for range n {
		r := request{cluster: pick(random, "a", "b"), user: pick(random, users...).Name, path: randomRequest(random)}
		if random.IntN(10) == 0 {
			r.as = pick(random, users...).Name
		}
		requests <- r
	}
	close(requests)
	running.Wait()
	t.Logf("codes of %d responses: %v", n, codes)
	if codes[http.StatusForbidden] < n/10 || codes[http.StatusOK] < n/10 {
		t.Error("too few responses of one kind to compare")
	}
}

// compareOne sends a request to the replica and to the cluster, and returns the code of the
// cluster and an error if the decisions differ.
func compareOne(ctx context.Context, w *guardedReplica, cluster, user, path, as string) (int, error) {
	token := w.clusters[cluster].UserConfig(user).BearerToken
	header := http.Header{}
	if as != "" {
		header.Set("Impersonate-User", as)
	}
	want, err := ask(ctx, w.clients[cluster], w.clusters[cluster].URL()+path, token, header)
	if err != nil {
		return 0, err
	}
	got, err := ask(ctx, w.Client(), w.URL+"/clusters/"+cluster+path, token, header)
	if err != nil {
		return want.code, err
	}
	if want.code != http.StatusForbidden && got.code != http.StatusForbidden && !served(path) {
		return want.code, nil // both allow it, and the replica does not have it
	}
	if got.code != want.code {
		return want.code, fmt.Errorf("code %d, want %d: %s", got.code, want.code, got.body)
	}
	if want.code != http.StatusForbidden {
		return want.code, nil
	}
	var gotStatus, wantStatus metav1.Status
	if err := errorsOf(json.Unmarshal(got.body, &gotStatus), json.Unmarshal(want.body, &wantStatus)); err != nil {
		return want.code, err
	}
	if as != "" && wantStatus.Reason == gotStatus.Reason && strings.Contains(wantStatus.Message, " impersonate") {
		return want.code, nil // the server has several ways to impersonate, and names another
	}
	gotStatus.Message, wantStatus.Message = sortedReasons(gotStatus.Message), sortedReasons(wantStatus.Message)
	if !reflect.DeepEqual(gotStatus, wantStatus) {
		return want.code, fmt.Errorf("%+v\nwant %+v", gotStatus, wantStatus)
	}
	return want.code, nil
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// served reports whether the replica has a path that is not a resource.
func served(path string) bool {
	return !slices.Contains([]string{"/metrics", "/logs/", "/debug/pprof"}, path)
}

// sortedReasons sorts the reasons in a message. kube-apiserver has them in random order.
func sortedReasons(message string) string {
	begin, end := strings.Index(message, "["), strings.LastIndex(message, "]")
	if begin < 0 || end < begin {
		return message
	}
	reasons := strings.Split(message[begin+1:end], ", ")
	slices.Sort(reasons)
	return message[:begin+1] + strings.Join(reasons, ", ") + message[end:]
}

// follow changes the rights in a cluster, and measures how long the replica's decision lags
// behind.
func follow(t *testing.T, w *guardedReplica, random *rand.Rand, mode string) {
	t.Helper()
	cluster := pick(random, "a", "b")
	k := w.clusters[cluster]
	const path = "/api/v1/namespaces/n2/configmaps/x"
	token := k.UserConfig("dan").BearerToken
	code := func() int {
		got, err := ask(t.Context(), w.Client(), w.URL+"/clusters/"+cluster+path, token, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.code
	}
	until := func(want int) {
		began := time.Now()
		expect.Eventually(t, time.Minute, func() error {
			if got := code(); got != want {
				return fmt.Errorf("the code is %d, want %d", got, want)
			}
			return nil
		})
		took := time.Since(began)
		t.Logf("the decision follows after %s", took.Round(time.Millisecond))
		if mode == "local" && took > 10*time.Second {
			t.Errorf("the decision follows after %s", took)
		}
	}
	if err := k.Grant(t.Context(), "dan", "n2", rbacv1.PolicyRule{
		Verbs:     []string{"get"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	}); err != nil {
		t.Fatal(err)
	}
	until(http.StatusOK)
	if err := k.Revoke(t.Context(), "dan"); err != nil {
		t.Fatal(err)
	}
	until(http.StatusForbidden)
}
