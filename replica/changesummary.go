// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// ChangesPath is the path below the root of a cluster's API with the numbers of changes. Its
// parameters are since, until and by. A caller needs the right to get the path. Counted are
// the resources that the caller may list in all namespaces.
const ChangesPath = "/changes"

// ChangeSummary is the response: how many changes there were.
type ChangeSummary struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Hidden is how many resources the caller may not list. Missing is how often changes are
	// missing in the files.
	Hidden  int           `json:"hidden,omitempty"`
	Missing int           `json:"missing,omitempty"`
	Items   []ChangeCount `json:"items"`
}

// ChangeCount is the number of changes that have the same values. Only those by which the
// request groups are set.
type ChangeCount struct {
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Type      string `json:"type,omitempty"`
	// Manager is the field manager, or several with a comma between them if it is not known
	// which of them made the change. It is empty for deletions.
	Manager string `json:"manager,omitempty"`
	Count   int    `json:"count"`
}

// groupings are what changes can be grouped by.
var groupings = map[string]func(*ChangeCount, *fleet.ResourceChange){
	"resource":  func(n *ChangeCount, c *fleet.ResourceChange) { n.Resource = c.Resource.GroupResource().String() },
	"namespace": func(n *ChangeCount, c *fleet.ResourceChange) { n.Namespace = c.Object.Namespace() },
	"type":      func(n *ChangeCount, c *fleet.ResourceChange) { n.Type = c.Type.String() },
	"manager":   func(n *ChangeCount, c *fleet.ResourceChange) { n.Manager = strings.Join(c.Managers(), ",") },
}

// serveSummary answers with the numbers of changes.
func (p *pastReads) serveSummary(w http.ResponseWriter, r *http.Request, q *Request) error {
	since, until, err := q.period("since", time.Now())
	if err != nil {
		return err
	}
	var by []func(*ChangeCount, *fleet.ResourceChange)
	for name := range strings.SplitSeq(cmp.Or(q.Query.Get("by"), "resource"), ",") {
		group := groupings[name]
		if group == nil {
			return apierrors.NewBadRequest(fmt.Sprintf("by=%s: changes can be grouped by %s", name, strings.Join(slices.Sorted(maps.Keys(groupings)), ", ")))
		}
		by = append(by, group)
	}
	s := ChangeSummary{Kind: "ChangeSummary", APIVersion: "watershed.dev/v1", Items: []ChangeCount{}}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	counts, listable := map[ChangeCount]int{}, p.listable(r, q, &s.Hidden, cancel)
	for _, mirrored := range p.member.Resources() {
		listable(mirrored.Resource) // before the files are read, which few requests may do at once
	}
	taken, err := takePast(&p.past, q.user(), changesObjects)
	if err != nil {
		return err
	}
	defer p.past.release(q.user(), taken)
	for change, err := range p.member.Changes(ctx, since, until, listable) {
		switch {
		case errors.Is(err, fleet.ErrNotStored), err != nil && ctx.Err() != nil:
			return view.PastError(schema.GroupResource{}, since, err)
		case err != nil:
			s.Missing++
			continue
		}
		var n ChangeCount
		for _, group := range by {
			group(&n, &change)
		}
		counts[n]++
	}
	for n, count := range counts {
		n.Count = count
		s.Items = append(s.Items, n)
	}
	slices.SortFunc(s.Items, func(a, b ChangeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b := respond.NewBody(&p.tracker, w, r, encode.JSON.MediaType(), p.logger)
	return b.Finish(func() error { return b.Add(encode.Raw(append(text, '\n'))) })
}

// listable returns a function that reports whether the caller may list a resource in all
// namespaces, and counts those that it may not. It calls fail if that cannot be decided.
func (p *pastReads) listable(r *http.Request, q *Request, hidden *int, fail func(error)) func(schema.GroupVersionResource) bool {
	decided := map[schema.GroupVersionResource]bool{}
	return func(resource schema.GroupVersionResource) bool {
		allowed, known := decided[resource]
		if known || p.authorize == nil {
			return allowed || p.authorize == nil
		}
		_, err := p.authorize(r, listOf(q, resource))
		switch {
		case apierrors.IsForbidden(err):
			*hidden++
		case err != nil:
			fail(err)
		}
		decided[resource] = err == nil
		return err == nil
	}
}

// listOf returns a list of a resource in all namespaces of the cluster of a request.
func listOf(q *Request, resource schema.GroupVersionResource) *Request {
	list := &Request{Cluster: q.Cluster, Member: q.Member, Path: kube.APIPath(resource.GroupVersion()) + "/" + resource.Resource, Query: url.Values{}}
	list.parsePath()
	list.Verb = "list"
	list.attributes = attributesOf(http.MethodGet, list.Path, list.Query)
	return list
}
