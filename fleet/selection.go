// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

// The resources whose objects define which types a cluster serves.
var (
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
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

// selection decides which resources to mirror.
type selection struct {
	take, leave []pattern
}

// pattern is a resource and a group. Each may match anything.
type pattern struct {
	resource, group       string
	anyResource, anyGroup bool
}

// newSelection parses the patterns of [Options].
func newSelection(take, leave []string) (selection, error) {
	var s selection
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
		return p, fmt.Errorf("pattern %q of resources does not have one of the forms pods, deployments.apps, *.apps, deployments.*, *", text)
	}
	return p, nil
}

func (p pattern) matches(r schema.GroupResource) bool {
	return (p.anyResource || p.resource == r.Resource) && (p.anyGroup || p.group == r.Group)
}

// has reports whether a resource is to be mirrored.
func (s selection) has(r schema.GroupResource) bool {
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
func (s selection) resolve(served []kube.Resource) map[schema.GroupResource]kube.Resource {
	picked := map[schema.GroupResource]kube.Resource{}
	for _, r := range served {
		at := r.GroupResource()
		if !watchable(r) || !s.has(at) {
			continue
		}
		if best, ok := picked[at]; !ok || rank(r) > rank(best) {
			picked[at] = r
		}
	}
	return picked
}

// wanted selects the resources of a cluster to mirror. Hidden are those of them that are not
// selected, and of which only the metadata is mirrored: they define the types of the cluster.
func (s selection) wanted(scope Scope, served []kube.Resource) (wanted map[schema.GroupResource]kube.Resource, hidden map[schema.GroupResource]bool) {
	served = slices.DeleteFunc(slices.Clone(served), func(r kube.Resource) bool { return !scope.has(r) })
	wanted, hidden = s.resolve(served), map[schema.GroupResource]bool{}
	for _, r := range served {
		at := r.GroupResource()
		if _, ok := wanted[at]; !ok && watchable(r) && (at == definitions || at == apiServices) {
			wanted[at], hidden[at] = r, true
		}
	}
	return wanted, hidden
}

// Selected returns what a fleet with these options lists and watches in a cluster that serves
// the given resources: the resources that it mirrors, and those of which it reads only the
// metadata, each in alphabetical order. It is for programs that compute the rights that a
// fleet needs.
func (o *Options) Selected(served []kube.Resource) (mirrored, metadata []kube.Resource, err error) {
	settings, err := newSettings(o)
	if err != nil {
		return nil, nil, err
	}
	wanted, hidden := settings.selection().wanted(settings.Scope, served)
	for _, at := range slices.SortedFunc(maps.Keys(wanted), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
		if hidden[at] {
			metadata = append(metadata, wanted[at])
		} else {
			mirrored = append(mirrored, wanted[at])
		}
	}
	return mirrored, metadata, nil
}

// watchable reports whether a resource can be mirrored at all.
func watchable(r kube.Resource) bool {
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

// first orders resources: those that define types come before the others.
func first(a, b schema.GroupResource) int {
	rank := func(r schema.GroupResource) string {
		if r == definitions || r == apiServices {
			return ""
		}
		return r.String()
	}
	return slices.Compare([]string{rank(a), a.String()}, []string{rank(b), b.String()})
}
