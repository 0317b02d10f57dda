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
	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// ChangesPath is the path below the root of the API of a cluster, or of the fleet, with the
// numbers of changes. Its parameters are since, until and by, and below /fleet a labelSelector
// for clusters. A caller needs the right to get the path. Counted are the resources that the
// caller may list in all namespaces.
const ChangesPath = "/changes"

// asksForSummary reports whether a request is for the numbers of changes.
func (q *Request) asksForSummary(r *http.Request) bool {
	return q.Path == ChangesPath && r.Method == http.MethodGet
}

// ChangeSummary is the response: how many changes there were.
type ChangeSummary struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Hidden is how many resources the caller may not list, or for which the cluster did not decide
	// in time. Missing is how often changes are
	// missing in the files.
	Hidden  int `json:"hidden,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Clusters are, below /fleet, the clusters with something hidden or missing, and those that
	// are left out. They have the numbers instead of Hidden and Missing.
	Clusters []PartialCluster `json:"clusters,omitempty"`
	Items    []ChangeCount    `json:"items"`
}

// ChangeCount is the number of changes that have the same values. Only those by which the
// request groups are set.
type ChangeCount struct {
	Cluster   string `json:"cluster,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Type      string `json:"type,omitempty"`
	// Manager is the field manager, or several with a comma between them if it is not known
	// which of them made the change. It is empty for deletions.
	Manager string `json:"manager,omitempty"`
	Count   int    `json:"count"`
}

// Compare orders numbers: the largest first, and equal ones by what they are of.
func (n ChangeCount) Compare(other ChangeCount) int {
	if n.Count != other.Count {
		return cmp.Compare(other.Count, n.Count)
	}
	return slices.Compare(n.of(), other.of())
}

func (n ChangeCount) of() []string {
	return []string{n.Cluster, n.Resource, n.Namespace, n.Type, n.Manager}
}

// groupings are what changes can be grouped by.
var groupings = map[string]func(*ChangeCount, *fleet.Member, *history.ResourceChange){
	"cluster": func(n *ChangeCount, m *fleet.Member, _ *history.ResourceChange) { n.Cluster = m.Name() },
	"resource": func(n *ChangeCount, _ *fleet.Member, c *history.ResourceChange) {
		n.Resource = c.Resource.GroupResource().String()
	},
	"namespace": func(n *ChangeCount, _ *fleet.Member, c *history.ResourceChange) { n.Namespace = c.Object.Namespace() },
	"type":      func(n *ChangeCount, _ *fleet.Member, c *history.ResourceChange) { n.Type = c.Type.String() },
	"manager": func(n *ChangeCount, _ *fleet.Member, c *history.ResourceChange) {
		n.Manager = strings.Join(c.Managers(), ",")
	},
}

// summary counts changes.
type summary struct {
	*shared
	since, until time.Time
	by           []func(*ChangeCount, *fleet.Member, *history.ResourceChange)
	counts       map[ChangeCount]int
}

func newSummary(s *shared, q *Request) (*summary, error) {
	since, until, err := q.period("since", time.Now())
	if err != nil {
		return nil, err
	}
	all := &summary{shared: s, since: since, until: until, counts: map[ChangeCount]int{}}
	for name := range strings.SplitSeq(cmp.Or(q.Query.Get("by"), "resource"), ",") {
		group := groupings[name]
		if group == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("by=%s: changes can be grouped by %s", name, strings.Join(slices.Sorted(maps.Keys(groupings)), ", ")))
		}
		all.by = append(all.by, group)
	}
	return all, nil
}

// enter decides which resources of members are counted, and then takes the memory that the request
// needs. The context ends if a right cannot be decided. The caller calls leave at the end.
func (s *summary) enter(r *http.Request, q *Request, members ...*fleet.Member) (ctx context.Context, rights *listRights, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	rights = s.listRights(r, q, cancel, members...)
	taken := 0
	if err = context.Cause(ctx); err == nil {
		taken, err = takePast(s.past, q.user(), changesObjects)
	}
	if err != nil {
		cancel(nil)
	}
	return ctx, rights, func() {
		s.past.Release(q.user(), taken)
		cancel(nil)
	}, err
}

// mostCounts is how many numbers a response has at most. Each takes some 200 bytes until it is
// written.
const mostCounts = 50_000

var errManyCounts = apierrors.NewBadRequest(fmt.Sprintf("there are more than %d different groups of changes: group by less, or shorten the period", mostCounts))

// add counts the changes of the resources of a member that the caller may list, and returns how
// often changes are missing in the files.
func (s *summary) add(ctx context.Context, m *fleet.Member, listable func(schema.GroupVersionResource) bool) (missing int, err error) {
	for change, err := range m.Changes(ctx, s.since, s.until, listable) {
		switch {
		case errors.Is(err, history.ErrNotStored), err != nil && ctx.Err() != nil:
			return missing, view.PastError(schema.GroupResource{}, s.since, err)
		case err != nil:
			missing++
			continue
		}
		var n ChangeCount
		for _, group := range s.by {
			group(&n, m, &change)
		}
		if s.counts[n]++; len(s.counts) > mostCounts {
			return missing, errManyCounts
		}
	}
	return missing, nil
}

// write answers with the numbers, the largest first.
func (s *summary) write(w http.ResponseWriter, r *http.Request, answer ChangeSummary) error {
	answer.Kind, answer.APIVersion, answer.Items = "ChangeSummary", "watershed.dev/v1", []ChangeCount{}
	for n, count := range s.counts {
		n.Count = count
		answer.Items = append(answer.Items, n)
	}
	slices.SortFunc(answer.Items, ChangeCount.Compare)
	return s.writeDocument(w, r, answer, func(b *respond.Body, text []byte) error { return b.Add(encode.Raw(append(text, '\n'))) })
}

// writeDocument encodes a document in JSON, and answers with what a function adds to the body.
func (s *shared) writeDocument(w http.ResponseWriter, r *http.Request, document any, add func(b *respond.Body, text []byte) error) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	b := respond.NewBody(&s.tracker, w, r, encode.JSON.MediaType(), s.logger)
	return b.Finish(func() error { return add(b, text) })
}

// serveSummary answers with the numbers of changes.
func (p *pastReads) serveSummary(w http.ResponseWriter, r *http.Request, q *Request) error {
	s, err := newSummary(p.shared, q)
	if err != nil {
		return err
	}
	ctx, rights, leave, err := s.enter(r, q, p.member)
	if err != nil {
		return err
	}
	defer leave()
	missing, err := s.add(ctx, p.member, rights.of(p.member))
	if err != nil {
		return err
	}
	return s.write(w, r, ChangeSummary{Hidden: rights.hidden[p.member], Missing: missing})
}

// listRights decides which resources a caller may list in all namespaces.
type listRights struct {
	*shared
	r       *http.Request
	q       *Request
	decided map[schema.GroupVersionResource]func(*fleet.Member) bool
	// asked are the resources that were asked for in each member, and hidden is how many of them
	// the caller may not list.
	asked  map[memberResource]bool
	hidden map[*fleet.Member]int
	// fail is called if the rights to a resource cannot be decided.
	fail func(error)
}

// memberResource is a resource of a member.
type memberResource struct {
	member   *fleet.Member
	resource schema.GroupVersionResource
}

// listRights decides about the mirrored resources of the members before the files are read, because
// few requests may read files at once. Resources that only the files have are decided about during
// the read.
func (s *shared) listRights(r *http.Request, q *Request, fail func(error), members ...*fleet.Member) *listRights {
	l := &listRights{
		shared: s, r: r, q: q, decided: map[schema.GroupVersionResource]func(*fleet.Member) bool{},
		asked: map[memberResource]bool{}, hidden: map[*fleet.Member]int{}, fail: fail,
	}
	for _, m := range members {
		allow := l.of(m)
		for _, mirrored := range m.Resources() {
			allow(mirrored.Resource)
		}
	}
	return l
}

func everywhere(*fleet.Member) bool { return true }

func nowhere(*fleet.Member) bool { return false }

// seenIn returns a function that reports in which members the caller may send a request. Members
// that do not decide count as members that refuse, below /fleet also if no other member decides.
func (s *shared) seenIn(r *http.Request, q *Request) (func(*fleet.Member) bool, error) {
	if s.authorize == nil {
		return everywhere, nil
	}
	access, err := s.authorize(r, q)
	switch {
	case apierrors.IsForbidden(err), q.Fleet && apierrors.IsServiceUnavailable(err):
		return nowhere, nil
	case err != nil:
		return nil, err
	case !q.Fleet || access == nil || access.Sees == nil:
		return everywhere, nil
	}
	return access.Sees, nil
}

// of returns a function that reports whether the caller may list a resource of a member in all
// namespaces, and counts the resources that the caller may not list.
func (l *listRights) of(m *fleet.Member) func(schema.GroupVersionResource) bool {
	return func(resource schema.GroupVersionResource) bool {
		at := memberResource{m, resource}
		if allowed, known := l.asked[at]; known {
			return allowed
		}
		right, known := l.decided[resource]
		if !known {
			var err error
			if right, err = l.seenIn(l.r, listOf(l.q, resource)); err != nil {
				l.fail(err)
				right = nowhere
			}
			l.decided[resource] = right
		}
		allowed := right(m)
		l.asked[at] = allowed
		if !allowed {
			l.hidden[m]++
		}
		return allowed
	}
}

// listOf returns a list of a resource in all namespaces of what a request addresses.
func listOf(q *Request, resource schema.GroupVersionResource) *Request {
	list := &Request{Cluster: q.Cluster, Member: q.Member, Fleet: q.Fleet, Path: kube.APIPath(resource.GroupVersion()) + "/" + resource.Resource, Query: url.Values{}}
	list.parsePath()
	list.Verb = "list"
	list.attributes = attributesOf(http.MethodGet, list.Path, list.Query)
	return list
}
