// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// The reviews of callers about themselves.
const (
	selfReviews   = "selfsubjectreviews"
	accessReviews = "selfsubjectaccessreviews"
	rulesReviews  = "selfsubjectrulesreviews"
)

// isReview reports whether a request creates a review of the caller.
func isReview(a replica.Attributes) bool {
	switch a.Group {
	case authenticationv1.GroupName:
		return a.Verb == "create" && a.Resource == selfReviews
	case authorizationv1.GroupName:
		return a.Verb == "create" && (a.Resource == accessReviews || a.Resource == rulesReviews)
	}
	return false
}

// Own returns the reviews of callers about themselves, for [replica.Options.ProgramResources]. Programs
// use them to find out what to offer to a person.
func (g *guards) Own() []replica.ProgramResource {
	return []replica.ProgramResource{
		{
			GroupVersionResource: authenticationv1.SchemeGroupVersion.WithResource(selfReviews),
			Kind:                 "SelfSubjectReview", Singular: "selfsubjectreview", Fleet: true,
			New: func() runtime.Object { return &authenticationv1.SelfSubjectReview{} }, Create: g.reviewIdentity,
		},
		{
			GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource(accessReviews),
			Kind:                 "SelfSubjectAccessReview", Singular: "selfsubjectaccessreview", Fleet: true,
			New: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, Create: g.reviewAccess,
		},
		{
			GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource(rulesReviews),
			Kind:                 "SelfSubjectRulesReview", Singular: "selfsubjectrulesreview", Fleet: true,
			PreferCluster: true,
			New:           func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
			Create:        g.reviewRules,
		},
	}
}

// reviewIdentity answers with the identity of the caller.
func (g *guards) reviewIdentity(r *http.Request, q *replica.Request, _ runtime.Object) (runtime.Object, error) {
	review := &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())},
	}
	who := CallOf(r).caller
	review.Status.UserInfo = who.UserInfo
	if q.Member != nil {
		at, err := g.of(q.Member)
		if err != nil {
			return nil, err
		}
		review.Status.UserInfo = *at.userOf(r.Context(), who)
	}
	return review, nil
}

// reviewAccess answers whether the caller may make a request.
func (g *guards) reviewAccess(r *http.Request, q *replica.Request, o runtime.Object) (runtime.Object, error) {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	a, err := attributesOf(&review.Spec)
	if err != nil {
		return nil, err
	}
	if q.Member == nil {
		review.Status = g.reviewFleetAccess(r.Context(), CallOf(r).caller, a)
		return review, nil
	}
	at, err := g.of(q.Member)
	if err != nil {
		return nil, err
	}
	d, err := at.decide(r.Context(), CallOf(r).caller, a)
	if err != nil {
		return nil, err
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: d.Allowed, Reason: d.Reason}
	if d.Allowed && !g.opts.PassThrough && lacks(q.Member, a) {
		of := schema.GroupResource{Group: a.Group, Resource: a.Resource}
		reason := fmt.Sprintf("the cluster allows it, but this server has no copy of %s and passes no requests on", of)
		review.Status = authorizationv1.SubjectAccessReviewStatus{Reason: reason}
	}
	return review, nil
}

// lacks reports whether a request is for a resource that is neither mirrored nor a review.
func lacks(m *fleet.Member, a replica.Attributes) bool {
	if !a.IsResource || a.Group == "*" || a.Resource == "*" || isReview(a) {
		return false
	}
	_, mirrored := m.Feed(schema.GroupResource{Group: a.Group, Resource: a.Resource})
	return !mirrored
}

// reviewFleetAccess returns whether the caller may read something below /fleet: whether a
// response would have at least one cluster. It counts only clusters whose API the caller may
// use, as the pages of the server do, and so shows nothing about others.
func (g *guards) reviewFleetAccess(
	ctx context.Context, who *caller, a replica.Attributes,
) authorizationv1.SubjectAccessReviewStatus {
	if a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" {
		return authorizationv1.SubjectAccessReviewStatus{Reason: "/fleet can only be read: get, list and watch"}
	}
	seen := g.review(ctx, who, usesAPI, g.fleet.Members())
	allow := g.review(ctx, who, a, slices.Collect(maps.Keys(seen.members)))
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: len(allow.members) > 0,
		Reason:  allowedIn(len(allow.members), len(seen.members)),
	}
	if missing := seen.unavailable + allow.unavailable; missing > 0 {
		status.EvaluationError = reviewsFailed(missing)
	}
	return status
}

// allowedIn returns the reason of a review: how many of the clusters whose API the caller may use
// allow the request.
func allowedIn(allowed, usable int) string {
	switch {
	case usable == 0:
		return "there is no cluster whose API you may use"
	case usable == 1 && allowed == 1:
		return "allowed in the only cluster whose API you may use"
	case usable == 1:
		return "not allowed in the only cluster whose API you may use"
	}
	return fmt.Sprintf("allowed in %d of the %d clusters whose API you may use", allowed, usable)
}

// reviewsFailed says that a number of clusters has not decided.
func reviewsFailed(clusters int) string {
	if clusters == 1 {
		return fmt.Sprintf("the access review failed or took longer than %s in 1 cluster", fleetTimeout)
	}
	return fmt.Sprintf("access reviews failed or took longer than %s in %d clusters", fleetTimeout, clusters)
}

// attributesOf returns the attributes that a review is about.
func attributesOf(spec *authorizationv1.SelfSubjectAccessReviewSpec) (replica.Attributes, error) {
	resource, path := spec.ResourceAttributes, spec.NonResourceAttributes
	if (resource == nil) == (path == nil) {
		message := "exactly one of nonResourceAttributes or resourceAttributes must be specified"
		return replica.Attributes{},
			apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview").GroupKind(), "",
				field.ErrorList{field.Invalid(field.NewPath("spec.resourceAttributes"), resource, message)})
	}
	if path != nil {
		return replica.Attributes{Verb: path.Verb, Path: path.Path}, nil
	}
	a := replica.Attributes{
		IsResource: true, Verb: resource.Verb, Group: resource.Group, Version: resource.Version,
		Resource:    resource.Resource,
		Subresource: resource.Subresource, Namespace: resource.Namespace, Name: resource.Name,
	}
	if s := resource.LabelSelector; s != nil {
		a.LabelSelector = s.RawSelector
		if a.LabelSelector == "" {
			a.LabelSelector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements})
		}
	}
	if s := resource.FieldSelector; s != nil {
		a.FieldSelector = s.RawSelector
		if a.FieldSelector == "" {
			a.FieldSelector = fieldSelector(s.Requirements)
		}
	}
	return a, nil
}

// fieldSelector returns requirements as a selector. One that a selector cannot express is
// left out: then the review is about more objects, and stricter.
func fieldSelector(requirements []metav1.FieldSelectorRequirement) string {
	var all []string
	for _, r := range requirements {
		switch {
		case len(r.Values) != 1:
		case r.Operator == metav1.FieldSelectorOpIn:
			all = append(all, r.Key+"="+r.Values[0])
		case r.Operator == metav1.FieldSelectorOpNotIn:
			all = append(all, r.Key+"!="+r.Values[0])
		}
	}
	return strings.Join(all, ",")
}

// reviewRules answers with the rules that apply to the caller in a namespace. A cluster
// answers that only for the credentials that it is asked with, so for other callers the
// rules are those of its RBAC objects, if they are mirrored. They are complete only if RBAC
// is known to decide alone.
func (g *guards) reviewRules(r *http.Request, q *replica.Request, o runtime.Object) (runtime.Object, error) {
	review := o.(*authorizationv1.SelfSubjectRulesReview)
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	answer := &authorizationv1.SelfSubjectRulesReview{}
	if q.Member == nil {
		answer.Status = noRules("clusters have different rules: use the API of one cluster, or a " +
			"SelfSubjectAccessReview")
		return answer, nil
	}
	at, err := g.of(q.Member)
	if err != nil {
		return nil, err
	}
	who := CallOf(r).caller
	if who.owner {
		client, err := authorizationclient.NewForConfig(at.connection.Config())
		if err != nil {
			return nil, unavailable(at.member)
		}
		return client.SelfSubjectRulesReviews().Create(r.Context(), review, metav1.CreateOptions{})
	}
	if !at.policy.current() {
		answer.Status = noRules("the replica has no current copy of the RBAC objects of the cluster")
		return answer, nil
	}
	answer.Status = at.policy.policy.Rules(&who.UserInfo, review.Spec.Namespace)
	answer.Status.Incomplete = !at.decidesLocally()
	return answer, nil
}

// noRules returns the answer to a review of rules that are not known, with the reason.
func noRules(reason string) authorizationv1.SubjectRulesReviewStatus {
	return authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		Incomplete: true, EvaluationError: reason,
	}
}
