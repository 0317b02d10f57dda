// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/watershed-project/watershed/replica"
)

// reviewKey identifies a review by everything that is sent to the cluster. It is a hash, so
// that a long selector, many groups or large extra values cost the cache no more than short
// ones.
type reviewKey [sha256.Size]byte

// keyOf returns the key of a review. A nil user stands for the user of the connection. The
// order of the groups does not matter.
func keyOf(user *authenticationv1.UserInfo, a *replica.Attributes) reviewKey {
	text := make([]byte, 0, 1024)
	field := func(s string) {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	if a.IsResource {
		text = append(text, 'r')
		for _, s := range [...]string{
			a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.FieldSelector,
			a.LabelSelector,
		} {
			field(s)
		}
	} else {
		text = append(text, 'n')
		field(a.Verb)
		field(a.Path)
	}
	if user == nil {
		return sha256.Sum256(text)
	}
	field(user.Username)
	field(user.UID)
	groups := user.Groups
	if !slices.IsSorted(groups) {
		groups = slices.Sorted(slices.Values(groups))
	}
	text = binary.AppendUvarint(text, uint64(len(groups)))
	for _, g := range groups {
		field(g)
	}
	text = binary.AppendUvarint(text, uint64(len(user.Extra)))
	if len(user.Extra) > 0 {
		for _, name := range slices.Sorted(maps.Keys(user.Extra)) {
			field(name)
			values := user.Extra[name]
			text = binary.AppendUvarint(text, uint64(len(values)))
			for _, v := range values {
				field(v)
			}
		}
	}
	return sha256.Sum256(text)
}

// specOf returns the review of a request of a user.
func specOf(user *authenticationv1.UserInfo, a *replica.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if user != nil {
		spec.User, spec.UID, spec.Groups = user.Username, user.UID, user.Groups
		if user.Extra != nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
			for name, values := range user.Extra {
				spec.Extra[name] = authorizationv1.ExtraValue(values)
			}
		}
	}
	if !a.IsResource {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   a.Namespace,
		Verb:        a.Verb,
		Group:       a.Group,
		Version:     a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource,
		Name:        a.Name,
	}
	if r := fieldRequirements(a.FieldSelector); len(r) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: r}
	}
	if r := labelRequirements(a.LabelSelector); len(r) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: r}
	}
	return spec
}

// fieldRequirements returns the requirements of a field selector. It leaves out what cannot be
// parsed, as kube-apiserver does: a selector only narrows a request, so the review is about
// more objects then, and stricter. It also leaves out a requirement without a field, which
// the API refuses in a review.
func fieldRequirements(selector string) []metav1.FieldSelectorRequirement {
	if selector == "" {
		return nil
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil
	}
	var list []metav1.FieldSelectorRequirement
	for _, r := range parsed.Requirements() {
		operator := metav1.FieldSelectorOpIn
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
		case selection.NotEquals, selection.NotIn:
			operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		if r.Field != "" {
			list = append(list, metav1.FieldSelectorRequirement{
				Key: r.Field, Operator: operator, Values: []string{r.Value},
			})
		}
	}
	return list
}

// labelOperators has the operators that a review can have. It leaves out "greater than" and
// "less than".
var labelOperators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals:       metav1.LabelSelectorOpIn,
	selection.DoubleEquals: metav1.LabelSelectorOpIn,
	selection.In:           metav1.LabelSelectorOpIn,
	selection.NotEquals:    metav1.LabelSelectorOpNotIn,
	selection.NotIn:        metav1.LabelSelectorOpNotIn,
	selection.Exists:       metav1.LabelSelectorOpExists,
	selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// labelRequirements returns the requirements of a label selector, without what cannot be
// parsed or expressed.
func labelRequirements(selector string) []metav1.LabelSelectorRequirement {
	if selector == "" {
		return nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil
	}
	requirements, _ := parsed.Requirements()
	var list []metav1.LabelSelectorRequirement
	for _, r := range requirements {
		if operator, ok := labelOperators[r.Operator()]; ok {
			list = append(list, metav1.LabelSelectorRequirement{
				Key: r.Key(), Operator: operator, Values: slices.Sorted(maps.Keys(r.Values())),
			})
		}
	}
	return list
}
