// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// groupings are what changes can be grouped by.
var groupings = map[string]func(*document.ChangeCount, *fleet.Member, *history.ResourceChange){
	"cluster": func(n *document.ChangeCount, m *fleet.Member, _ *history.ResourceChange) { n.Cluster = m.Name() },
	"resource": func(n *document.ChangeCount, _ *fleet.Member, c *history.ResourceChange) {
		n.Resource = c.Resource.GroupResource().String()
	},
	"namespace": func(n *document.ChangeCount, _ *fleet.Member, c *history.ResourceChange) {
		n.Namespace = c.Object.Namespace()
	},
	"type": func(n *document.ChangeCount, _ *fleet.Member, c *history.ResourceChange) { n.Type = string(c.Type) },
	"manager": func(n *document.ChangeCount, _ *fleet.Member, c *history.ResourceChange) {
		n.Manager = strings.Join(c.Managers(), ",")
	},
}

// summary counts changes.
type summary struct {
	*Reader
	since, until time.Time
	by           []func(*document.ChangeCount, *fleet.Member, *history.ResourceChange)
	counts       map[document.ChangeCount]int
}

func newSummary(p *Reader, q *Request) (*summary, error) {
	since, until, err := q.period("since", time.Now())
	if err != nil {
		return nil, err
	}
	all := &summary{Reader: p, since: since, until: until, counts: map[document.ChangeCount]int{}}
	for name := range strings.SplitSeq(cmp.Or(q.Query.Get("by"), "resource"), ",") {
		group := groupings[name]
		if group == nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("by=%s: changes can be grouped by %s",
				name, strings.Join(slices.Sorted(maps.Keys(groupings)), ", ")))
		}
		all.by = append(all.by, group)
	}
	return all, nil
}

// enter decides which resources of members are counted, and then takes the memory that the request
// needs. The context ends if a right cannot be decided. The caller calls leave at the end.
func (s *summary) enter(
	r *http.Request, q *Request, members ...*fleet.Member,
) (ctx context.Context, rights *listRights, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	rights = newListRights(q, cancel, members...)
	taken := 0
	if err = context.Cause(ctx); err == nil {
		taken, err = takeObjects(s.budget, q.User, changesObjects)
	}
	if err != nil {
		cancel(nil)
	}
	return ctx, rights, func() {
		s.budget.Release(q.User, taken)
		cancel(nil)
	}, err
}

// mostCounts is how many numbers a response has at most. Each takes some 200 bytes until it is
// written.
const mostCounts = 50_000

var errManyCounts = apierrors.NewBadRequest(fmt.Sprintf(
	"there are more than %d different groups of changes: group by less, or shorten the period", mostCounts))

// add counts the changes of the resources of a member that the caller may list, and returns how
// often changes are missing in the files, and when they begin.
func (s *summary) add(
	ctx context.Context, m *fleet.Member, listable func(schema.GroupVersionResource) bool,
) (missing int, began time.Time, err error) {
	for change, err := range m.Changes(ctx, s.since, s.until, listable) {
		switch {
		case errors.Is(err, history.ErrNotStored), err != nil && ctx.Err() != nil:
			return missing, s.since, view.PastError(schema.GroupResource{}, s.since, err)
		case err != nil:
			missing++
			continue
		}
		var n document.ChangeCount
		for _, group := range s.by {
			group(&n, m, &change)
		}
		if s.counts[n]++; len(s.counts) > mostCounts {
			return missing, s.since, errManyCounts
		}
	}
	began, err = s.begins(ctx, m, listable)
	return missing, began, err
}

// noObject is a key that no object has. A state with only that object is read by the index.
const noObject = "/"

// begins returns when the changes of a member begin: at the beginning of the period, or later if
// the files of no resource that the caller may list reach back so far.
func (s *summary) begins(
	ctx context.Context, m *fleet.Member, listable func(schema.GroupVersionResource) bool,
) (time.Time, error) {
	var earliest time.Time
	for _, mirrored := range m.Resources() {
		feed, ok := m.Feed(mirrored.Resource.GroupResource())
		if !ok || !listable(mirrored.Resource) {
			continue
		}
		_, err := feed.AtTime(ctx, s.since, history.Wanted{Key: noObject})
		tooOld := (*history.TooOldError)(nil)
		switch {
		case ctx.Err() != nil:
			return s.since, view.PastError(schema.GroupResource{}, s.since, err)
		case errors.Is(err, history.ErrNotStored):
		case !errors.As(err, &tooOld):
			return s.since, nil // also if it is not known
		case earliest.IsZero() || tooOld.Oldest.Before(earliest):
			earliest = tooOld.Oldest
		}
	}
	if earliest.IsZero() {
		return s.since, nil
	}
	return earliest, nil
}

// write answers with the numbers, the largest first.
func (s *summary) write(w http.ResponseWriter, r *http.Request, answer document.ChangeSummary) error {
	answer.Kind = "ChangeSummary"
	answer.APIVersion = "watershed.dev/v1"
	answer.Items = []document.ChangeCount{}
	for n, count := range s.counts {
		n.Count = count
		answer.Items = append(answer.Items, n)
	}
	slices.SortFunc(answer.Items, document.ChangeCount.Compare)
	return s.writeDocument(w, r, answer, func(b *respond.Body, text []byte) error {
		return b.Add(encode.Raw(append(text, '\n')))
	})
}

// ServeSummary answers with the numbers of changes in a member.
func (p *Reader) ServeSummary(w http.ResponseWriter, r *http.Request, q *Request, m *fleet.Member) error {
	s, err := newSummary(p, q)
	if err != nil {
		return err
	}
	ctx, rights, leave, err := s.enter(r, q, m)
	if err != nil {
		return err
	}
	defer leave()
	missing, began, err := s.add(ctx, m, rights.of(m))
	if err != nil {
		return err
	}
	return s.write(w, r, document.ChangeSummary{Since: began.UTC(), Hidden: rights.hidden[m], Missing: missing})
}

// ServeFleetSummary answers with the numbers of changes in several members, which selected returns: it is called when
// the parameters are known to be good.
func (p *Reader) ServeFleetSummary(
	w http.ResponseWriter, r *http.Request, q *Request, selected func() []*fleet.Member,
) error {
	s, err := newSummary(p, q)
	if err != nil {
		return err
	}
	switch byLabels, err := q.selectsObjects(); {
	case err != nil:
		return err
	case byLabels:
		return apierrors.NewBadRequest("labelSelector: numbers of changes can be selected by cluster only")
	}
	members := selected()
	ctx, rights, leave, err := s.enter(r, q, members...)
	if err != nil {
		return err
	}
	defer leave()
	answer := document.ChangeSummary{Since: s.until.UTC()}
	var failed []error
	for _, m := range members {
		missing, began, err := s.add(ctx, m, rights.of(m))
		if err != nil && (ctx.Err() != nil || errors.Is(err, errManyCounts)) {
			return err
		}
		partial := document.PartialCluster{Name: m.Name(), Hidden: rights.hidden[m], Missing: missing}
		if err != nil {
			partial.Message, failed = err.Error(), append(failed, err)
		} else if began = began.UTC(); began.Before(answer.Since) {
			answer.Since = began
		}
		if began.After(s.since) {
			partial.Since = &began
		}
		if partial != (document.PartialCluster{Name: m.Name()}) {
			answer.Clusters = append(answer.Clusters, partial)
		}
	}
	if len(failed) > 0 && len(failed) == len(members) {
		return failed[0]
	}
	return s.write(w, r, answer)
}

// listRights decides which resources a caller may list in all namespaces.
type listRights struct {
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

// newListRights decides about the mirrored resources of the members before the files are read, because
// few requests may read files at once. Resources that only the files have are decided about during
// the read.
func newListRights(q *Request, fail func(error), members ...*fleet.Member) *listRights {
	l := &listRights{
		q: q, decided: map[schema.GroupVersionResource]func(*fleet.Member) bool{},
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

// listIn returns a function that reports in which members the caller may list a resource in all namespaces.
func (q *Request) listIn(resource schema.GroupVersionResource) (func(*fleet.Member) bool, error) {
	if q.Rights == nil {
		return everywhere, nil
	}
	return q.Rights.ListIn(resource)
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
			if right, err = l.q.listIn(resource); err != nil {
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
