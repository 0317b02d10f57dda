// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

// Definitions and APIServices are the resources whose objects define which types a cluster serves.
var (
	Definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	APIServices = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

// leftOutByDefault are resources that are not mirrored unless a pattern names them. They
// are secret, or many and short-lived and of little use to readers of a copy. The group
// extensions is an old name of resources that have another group too.
var leftOutByDefault = []schema.GroupResource{
	{Resource: "secrets"},
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
	{Group: "coordination.k8s.io", Resource: "leases"},
	{Group: "coordination.k8s.io", Resource: "leasecandidates"},
	{Group: "extensions", Resource: "ingresses"},
}

// Selection decides which resources to mirror.
type Selection struct {
	take, leave []pattern
}

// pattern is a resource and a group. Each may match anything.
type pattern struct {
	resource, group       string
	anyResource, anyGroup bool
}

// New parses the patterns that select resources to mirror, all if "take" is nil, and of those that
// select resources to leave out.
func New(take, leave []string) (Selection, error) {
	var s Selection
	switch {
	case take == nil:
		take = []string{"*"}
	case len(take) == 0:
		return s, errors.New(`list of resources is empty: use "*" for all`)
	}
	for _, part := range []struct {
		from []string
		to   *[]pattern
	}{{take, &s.take}, {leave, &s.leave}} {
		for _, text := range part.from {
			p, err := parsePattern(text)
			if err != nil {
				return s, err
			}
			*part.to = append(*part.to, p)
		}
	}
	return s, nil
}

// parsePattern reads "pods", "deployments.apps", "*.apps", "deployments.*" or "*".
func parsePattern(text string) (pattern, error) {
	resource, group, grouped := strings.Cut(text, ".")
	p := pattern{
		resource: resource, group: group,
		anyResource: resource == "*", anyGroup: group == "*" || text == "*",
	}
	legal := func(s string) bool { return s == "*" || s != "" && !strings.ContainsAny(s, "*/ ") }
	if !legal(resource) || grouped && !legal(group) {
		return p, fmt.Errorf("pattern %q of resources does not have one of the forms pods, deployments.apps, *.apps, "+
			"deployments.*, *", text)
	}
	return p, nil
}

func (p pattern) matches(r schema.GroupResource) bool {
	return (p.anyResource || p.resource == r.Resource) && (p.anyGroup || p.group == r.Group)
}

// Has reports whether a resource is to be mirrored.
func (s Selection) Has(r schema.GroupResource) bool {
	if slices.ContainsFunc(s.leave, func(p pattern) bool { return p.matches(r) }) {
		return false
	}
	byDefault := !slices.Contains(leftOutByDefault, r)
	return slices.ContainsFunc(s.take, func(p pattern) bool {
		return p.matches(r) && (byDefault || !p.anyResource && !p.anyGroup)
	})
}

// resolve selects the resources to mirror from those that a cluster serves: each resource
// once, in the version that the server prefers, or in another that can be listed and
// watched. A built-in resource is mirrored in a version that this program has a type for,
// if the server serves one.
func (s Selection) resolve(served []kube.Resource) map[schema.GroupResource]kube.Resource {
	picked := map[schema.GroupResource]kube.Resource{}
	for _, r := range served {
		at := r.GroupResource()
		if !Watchable(r) || !s.Has(at) {
			continue
		}
		if best, ok := picked[at]; !ok || rank(r) > rank(best) {
			picked[at] = r
		}
	}
	return picked
}

// Wanted selects the resources of a cluster to mirror. Hidden are those of them that are not
// selected, and of which only the metadata is mirrored: they define the types of the cluster.
func (s Selection) Wanted(
	scope Scope, served []kube.Resource,
) (wanted map[schema.GroupResource]kube.Resource, hidden map[schema.GroupResource]bool) {
	served = slices.DeleteFunc(slices.Clone(served), func(r kube.Resource) bool { return !Includes(scope, r) })
	wanted, hidden = s.resolve(served), map[schema.GroupResource]bool{}
	for _, r := range served {
		at := r.GroupResource()
		if _, ok := wanted[at]; !ok && Watchable(r) && (at == Definitions || at == APIServices) {
			wanted[at], hidden[at] = r, true
		}
	}
	return wanted, hidden
}

// Watchable reports whether a resource can be mirrored at all.
func Watchable(r kube.Resource) bool {
	return slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// rank orders the versions of a resource. Equal ones keep the server's order.
func rank(r kube.Resource) int {
	n := 0
	if r.Preferred {
		n++
	}
	if _, known := kube.KindOf(r.GroupVersionResource); known {
		n += 2
	}
	return n
}

// First orders resources: those that define types come before the others.
func First(a, b schema.GroupResource) int {
	rank := func(r schema.GroupResource) string {
		if r == Definitions || r == APIServices {
			return ""
		}
		return r.String()
	}
	return slices.Compare([]string{rank(a), a.String()}, []string{rank(b), b.String()})
}
