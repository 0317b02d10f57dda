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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
)

// userClients returns clients of a user: of the cluster itself, and of its copy.
func (w *world) userClients(t *testing.T, cluster, user, contentType string) (origin, copied *kubernetes.Clientset) {
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
func compareReviews(t *testing.T, w *world, random *rand.Rand, local bool) {
	t.Helper()
	for _, user := range users {
		contentType := pick(random, "application/json", "application/vnd.kubernetes.protobuf")
		origin, copied := w.userClients(t, pick(random, "a", "b"), user.Name, contentType)
		name := fmt.Sprintf("%s, %s", user.Name, contentType)

		want, err := origin.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		expect.NoError(t, err)
		got, err := copied.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		expect.Equal(t, got.Status, want.Status)

		for range 50 {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: pick(random, "get", "list", "watch", "create", "*"), Group: pick(random, "", "apps", "*"), Resource: pick(random, "pods", "deployments", "configmaps", "*"),
				Subresource: pick(random, "", "", "scale", "status"), Namespace: pick(random, "", "n1", "n2"), Name: pick(random, "", "x"),
			}}}
			if random.IntN(5) == 0 {
				review.Spec = authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: pick(random, "get", "post"), Path: pick(random, "/metrics", "/version", "/logs/x")}}
			}
			want, err := origin.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			expect.NoError(t, err)
			got, err := copied.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// Of several bindings that allow it, the server names any.
			if got.Status.Allowed != want.Status.Allowed || !want.Status.Allowed && sortedReasons(got.Status.Reason) != sortedReasons(want.Status.Reason) {
				t.Errorf("%s, %+v: %+v, want %+v", name, review.Spec, got.Status, want.Status)
			}
		}
		compareRules(t, origin, copied, local)
	}
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
		slices.SortFunc(s.ResourceRules, func(a, b authorizationv1.ResourceRule) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		slices.SortFunc(s.NonResourceRules, func(a, b authorizationv1.NonResourceRule) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		s.EvaluationError = sortedReasons(s.EvaluationError)
	}
	if got.Status.Incomplete == local {
		t.Errorf("incomplete is %v in local mode %v", got.Status.Incomplete, local)
	}
	want.Status.Incomplete = got.Status.Incomplete
	expect.Equal(t, got.Status, want.Status)
}
