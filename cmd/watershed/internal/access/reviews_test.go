// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
)

// userClients returns clients of a user: of the cluster itself, and of its copy.
func (w *guardedReplica) userClients(
	t *testing.T, cluster, user, contentType string,
) (origin, copied *kubernetes.Clientset) {
	t.Helper()
	cfg := w.clusters[cluster].UserConfig(user)
	cfg.QPS, cfg.ContentType = -1, contentType
	origin = kubernetes.NewForConfigOrDie(cfg)
	copied = kubernetes.NewForConfigOrDie(&rest.Config{
		Host: w.URL + "/clusters/" + cluster, BearerToken: cfg.BearerToken, QPS: -1,
		ContentConfig:   rest.ContentConfig{ContentType: contentType},
		TLSClientConfig: rest.TLSClientConfig{CAData: w.authority()},
	})
	return origin, copied
}

// compareReviews compares the reviews of users about themselves with those of the clusters.
func compareReviews(t *testing.T, w *guardedReplica, random *rand.Rand, local bool) {
	t.Helper()
	for _, user := range users {
		contentType := pick(random, "application/json", "application/vnd.kubernetes.protobuf")
		origin, copied := w.userClients(t, pick(random, "a", "b"), user.Name, contentType)
		name := fmt.Sprintf("%s, %s", user.Name, contentType)

		want, err := origin.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		expect.NoError(t, err)
		got, err := copied.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		expect.Equal(t, got.Status, want.Status)

		for range 50 {
			review := accessReview(authorizationv1.ResourceAttributes{
				Verb: pick(random, "get", "list", "watch", "create", "*"), Group: pick(random, "", "apps", "*"),
				Resource:    pick(random, "pods", "deployments", "configmaps", "*"),
				Subresource: pick(random, "", "", "scale", "status"), Namespace: pick(random, "", "n1", "n2"),
				Name: pick(random, "", "x"),
			})
			if random.IntN(5) == 0 {
				review.Spec = authorizationv1.SelfSubjectAccessReviewSpec{
					NonResourceAttributes: &authorizationv1.NonResourceAttributes{
						Verb: pick(random, "get", "post"), Path: pick(random, "/metrics", "/version", "/logs/x"),
					},
				}
			}
			want, err := origin.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review,
				metav1.CreateOptions{})
			expect.NoError(t, err)
			got, err := copied.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review,
				metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if a := review.Spec.ResourceAttributes; a != nil && !exists(a.Group, a.Resource) {
				want.Status.Allowed = false // this server has no copy
				want.Status.Reason = got.Status.Reason
			}
			// Of several bindings that allow it, the server names any.
			if got.Status.Allowed != want.Status.Allowed ||
				!want.Status.Allowed && sortedReasons(got.Status.Reason) != sortedReasons(want.Status.Reason) {
				t.Errorf("%s, %+v: %+v, want %+v", name, review.Spec, got.Status, want.Status)
			}
		}
		compareRules(t, origin, copied, local)
	}
}

// exists reports whether a cluster has one of the random resources, or whether it stands for several.
func exists(group, resource string) bool {
	return group == "*" || resource == "*" || (group == "apps") == (resource == "deployments")
}

// compareRules compares the rules of a user in a namespace.
func compareRules(t *testing.T, origin, copied *kubernetes.Clientset, local bool) {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n1"}}
	want, err := origin.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	expect.NoError(t, err)
	got, err := copied.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	expect.NoError(t, err)
	for _, s := range []*authorizationv1.SubjectRulesReviewStatus{&got.Status, &want.Status} {
		slices.SortFunc(s.ResourceRules, func(a, b authorizationv1.ResourceRule) int {
			return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
		})
		slices.SortFunc(s.NonResourceRules, func(a, b authorizationv1.NonResourceRule) int {
			return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
		})
		s.EvaluationError = sortedReasons(s.EvaluationError)
	}
	if got.Status.Incomplete == local {
		t.Errorf("incomplete is %v in local mode %v", got.Status.Incomplete, local)
	}
	want.Status.Incomplete = got.Status.Incomplete
	expect.Equal(t, got.Status, want.Status)
}

// reviewer returns a client of a part of the replica's API.
func (w *guardedReplica) reviewer(token, path string) *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(&rest.Config{
		Host: w.URL + path, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: w.authority()},
	})
}

// A review below /fleet counts only the clusters that the caller may use with the identity that
// crosses to them, and says yes only for what a request below /fleet may read.
func attackReviews(t *testing.T, w *attackedReplica) {
	type question struct{ verb, group, resource, namespace string }
	list, secrets := question{"list", "", "configmaps", "n1"}, question{"get", "", "secrets", "n2"}
	for _, tt := range []struct {
		user, token string
		question
		allowed bool
		reason  string
	}{
		{"ann", w.token(w.a, "ann"), list, true, "allowed in the only cluster whose API you may use"},
		{"ann", w.token(w.a, "ann"), secrets, true, "allowed in the only cluster whose API you may use"},
		{"oidc:cy", w.token(w.a, "oidc:cy"), list, true, "allowed in 2 of the 2 clusters whose API you may use"},
		{"oidc:cy", w.token(w.a, "oidc:cy"), secrets, false, "allowed in 0 of the 2 clusters whose API you may use"},
		{"dan", w.token(w.a, "dan"), list, false, "not allowed in the only cluster whose API you may use"},
		{"owner", ownerToken, secrets, true, "allowed in 2 of the 2 clusters whose API you may use"},
		{
			"owner", ownerToken, question{"create", "", "configmaps", "n1"}, false,
			"/fleet can only be read: get, list and watch",
		},
		{"owner", ownerToken, question{"*", "*", "*", ""}, false, "/fleet can only be read: get, list and watch"},
	} {
		review := accessReview(authorizationv1.ResourceAttributes{
			Verb: tt.verb, Group: tt.group, Resource: tt.resource, Namespace: tt.namespace,
		})
		got, err := w.reviewer(tt.token, "/fleet").AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			review, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s, %v: %v", tt.user, tt.question, err)
		}
		want := authorizationv1.SubjectAccessReviewStatus{Allowed: tt.allowed, Reason: tt.reason}
		if got.Status != want {
			t.Errorf("%s, %v: %+v, want %+v", tt.user, tt.question, got.Status, want)
		}
	}
	rules, err := w.reviewer(w.token(w.a, "ann"),
		"/fleet").AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "n1"},
		}, metav1.CreateOptions{})
	if err != nil || !rules.Status.Incomplete || len(rules.Status.ResourceRules) > 0 {
		t.Errorf("rules of ann: %+v, %v", rules, err)
	}
	// A made-up token, or a token of another cluster than the home, gives no identity below /fleet.
	for _, token := range []string{"", "made-up", w.token(w.b, "ann")} {
		_, err := w.reviewer(token, "/fleet").AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("a review without an identity of the home: %v", err)
		}
	}
	// The cluster would allow it, but this server cannot answer it.
	review := accessReview(authorizationv1.ResourceAttributes{
		Verb: "list", Group: "example.com", Resource: "widgets",
	})
	got, err := w.reviewer(w.bot, "/clusters/a").AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
		review, metav1.CreateOptions{})
	expect.NoError(t, err)
	expect.Equal(t, got.Status, authorizationv1.SubjectAccessReviewStatus{
		Reason: "the cluster allows it, but this server has no copy of widgets.example.com and passes no requests on",
	})
}

func accessReview(attributes authorizationv1.ResourceAttributes) *authorizationv1.SelfSubjectAccessReview {
	return &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
}
