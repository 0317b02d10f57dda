// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verification

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// maxRequests is how many requests run at once.
const maxRequests = 4

// Service answers requests that create verifications. All methods are safe for concurrent
// use.
type Service struct {
	fleet *fleet.Fleet
	slots chan struct{}
	// others are nil if there is no port for other replicas.
	others *Replicas
}

// NewService returns the service of a fleet, and of the other replicas of its group, nil if there is no
// port for them.
func NewService(f *fleet.Fleet, others *Replicas) *Service {
	return &Service{fleet: f, slots: make(chan struct{}, maxRequests), others: others}
}

// Own returns the resource, for [replica.Options.ProgramResources].
func (s *Service) Own() replica.ProgramResource {
	return replica.ProgramResource{
		GroupVersionResource: Resource, Kind: kind, Singular: "verification", Fleet: true,
		New: func() runtime.Object { return &Verification{} }, Create: s.create,
	}
}

// create compares what a verification selects.
func (s *Service) create(r *http.Request, q *replica.Request, o runtime.Object) (runtime.Object, error) {
	v := o.(*Verification)
	if v.Spec.Replicas && (s.others == nil || v.Spec.Deep || v.Spec.Repair) {
		return nil, apierrors.NewBadRequest("replicas are compared without deep and repair, and only if the server " +
			"has other replicas, see serve --group-listen")
	}
	plan, err := s.plan(&v.Spec, q.CanSee)
	if err != nil {
		return nil, err
	}
	v.Status = Status{Results: make([]Result, len(plan))}
	if slices.Contains(q.Query["dryRun"], metav1.DryRunAll) {
		for i, p := range plan {
			v.Status.Results[i] = p.result()
		}
		return v, nil
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d verifications are running", maxRequests), 1)
	}
	if v.Spec.Replicas {
		v.Status.Results, err = s.others.compareAll(r.Context(), plan)
		return v, err
	}
	for i, p := range plan {
		v.Status.Results[i] = p.compare(r.Context(), &v.Spec)
	}
	return v, nil
}

// pair is one resource of one cluster. Unread is why no resource of the cluster is known: then
// the resource is [AllResources].
type pair struct {
	member   *fleet.Member
	resource schema.GroupResource
	unread   error
}

// result returns the result of a pair before the comparison.
func (p pair) result() Result {
	r := Result{Cluster: p.member.Name(), Resource: p.resource.String()}
	if p.unread != nil {
		r.Error = p.unread.Error()
	}
	return r
}

// errUnread means that nothing of a cluster was ever read.
var errUnread = errors.New("the cluster was never read")

// plan returns the pairs that a request selects, of the clusters that its caller sees. They
// include what was never read.
func (s *Service) plan(spec *Spec, sees func(*fleet.Member) bool) ([]pair, error) {
	members, err := s.members(spec.Clusters, sees)
	if err != nil {
		return nil, err
	}
	found, unread := map[string]bool{}, false
	var all []pair
	for _, m := range members {
		for _, p := range pairsOf(m) {
			name := p.resource.String()
			unread = unread || p.unread != nil
			if p.unread == nil && len(spec.Resources) > 0 && !slices.Contains(spec.Resources, name) {
				continue
			}
			found[name] = true
			all = append(all, p)
		}
	}
	for _, name := range spec.Resources {
		if !found[name] && !unread {
			return nil, apierrors.NewBadRequest(
				fmt.Sprintf("no selected cluster mirrors the resource %q: use its plural name with its group, such "+
					"as pods or deployments.apps, and see serve --resources and --except", name),
			)
		}
	}
	return all, nil
}

// pairsOf returns the pairs of a cluster.
func pairsOf(m *fleet.Member) []pair {
	if !m.Discovered() {
		return []pair{{m, schema.GroupResource{Resource: AllResources}, cmp.Or(m.Status().Err, errUnread)}}
	}
	var all []pair
	for _, r := range m.Mirrored() {
		all = append(all, pair{member: m, resource: r})
	}
	return all
}

// members returns the members with the given names, or all, that the caller sees. A cluster
// that the caller does not see is as absent as one that does not exist.
func (s *Service) members(names []string, sees func(*fleet.Member) bool) ([]*fleet.Member, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(s.fleet.Members(), func(m *fleet.Member) bool { return !sees(m) }), nil
	}
	var all []*fleet.Member
	for _, name := range names {
		m, ok := s.fleet.Member(name)
		if !ok || !sees(m) {
			return nil, apierrors.NewBadRequest(
				fmt.Sprintf("there is no cluster %q, or you may not create verifications.watershed.dev in it", name),
			)
		}
		if !slices.Contains(all, m) { // it may have two names
			all = append(all, m)
		}
	}
	return all, nil
}

// compare compares one pair.
func (p pair) compare(ctx context.Context, spec *Spec) Result {
	result := p.result()
	if p.unread != nil {
		return result
	}
	v, err := p.member.Verify(ctx, p.resource, fleet.VerifyOptions{Deep: spec.Deep, Repair: spec.Repair})
	switch {
	case errors.Is(err, fleet.ErrNotMirrored):
		result.Error = "the cluster does not serve the resource any more"
		return result
	case err != nil:
		result.Error = err.Error()
		return result
	}
	result.Version, result.Objects, result.Bytes = version(v.Version), v.Objects, v.Bytes
	result.Seconds, result.Undecided = v.Took.Seconds(), v.Undecided
	for kind, n := range v.Counts {
		if result.Divergences == nil {
			result.Divergences = map[string]int{}
		}
		result.Divergences[string(kind)] = n
	}
	for _, d := range v.Examples {
		result.Examples = append(result.Examples, Example{
			Kind: string(d.Kind), Key: d.Key, Cluster: version(d.Server), Copy: version(d.Copy),
		})
	}
	if v.Repair != nil {
		n := v.Repair.Divergences()
		result.Remaining = &n
	}
	return result
}

// version returns a version as text, "" if there is none.
func version(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}
