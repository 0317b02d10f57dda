// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/warning"
)

// The reasons of problems that are not a [Trouble].
const (
	// TypeRemoved means that the cluster has ceased to serve a resource that was mirrored.
	TypeRemoved = "TypeRemoved"
	// ClockSkew means that the clocks of the cluster and of this program differ.
	ClockSkew = "ClockSkew"
	// Slow means that the API server takes long to answer.
	Slow = "Slow"
	// Flapping means that the copy was interrupted several times within ten minutes.
	Flapping = "Flapping"
	// NameTaken means that another cluster of the same name is left out, or that another
	// cluster had the name until recently.
	NameTaken = "NameTaken"
	// Diverged means that a verification has found a copy that differs from the cluster.
	Diverged = "Diverged"
	// ClusterIsNewer means that the cluster is newer than the types of this program.
	ClusterIsNewer = "ClusterIsNewer"
	// NotStored means that the objects of the cluster are not stored in files, so that they are
	// listed again after a restart, and have no past.
	NotStored = "NotStored"
)

// maxNamed limits how many resources a problem names.
const maxNamed = 10

// Problem is a cause for concern about a cluster.
type Problem struct {
	// Reason is a [Trouble] or one of the constants of this package.
	Reason string `json:"reason"`
	// Since is when the problem began, zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Resources are the first resources that are concerned, and More is how many others are.
	// Both are empty if the whole cluster is concerned.
	Resources []string `json:"resources,omitempty"`
	More      int      `json:"more,omitempty"`
	// Message describes the problem for people.
	Message string `json:"message"`
}

// Problems returns the problems of the member. Its messages are for people: they may change.
func (s Status) Problems() []Problem {
	all := currency(s)
	if n := len(s.Diverged); n > 0 {
		p := Problem{
			Reason:  Diverged,
			Message: "the copy differs from the cluster, as a verification has found",
			More:    max(0, n-maxNamed),
		}
		for _, r := range s.Diverged[:min(n, maxNamed)] {
			p.Resources = append(p.Resources, r.Resource.GroupResource().String())
		}
		all = append(all, p)
	}
	if n := len(s.Shadowed); n > 0 {
		all = append(all, Problem{
			Reason: NameTaken,
			Message: "another cluster of this name is left out; it is in " +
				strings.Join(s.Shadowed[:min(n, maxNamed)], ", "),
		})
	}
	if was := s.Predecessor; was != (upstream.Identity{}) {
		all = append(all, Problem{Reason: NameTaken, Since: s.Joined, Message: replacement(s.Identity, was)})
	}
	for _, r := range s.Removals {
		all = append(all, Problem{
			Reason: TypeRemoved, Since: r.At, Resources: []string{r.Resource.String()},
			Message: "the cluster has ceased to serve the resource; requests for it are answered with 404",
		})
	}
	if s.Interruptions >= flappingLimit {
		all = append(all, Problem{
			Reason:  Flapping,
			Since:   s.Interrupted,
			Message: fmt.Sprintf("the watches broke %d times within 10 minutes and were resumed", s.Interruptions),
		})
	}
	all = append(all, probed(s)...)
	if s.Unstored != nil {
		all = append(all, Problem{
			Reason:  NotStored,
			Message: "the objects are not stored, and will be listed again after a restart: " + s.Unstored.Error(),
		})
	}
	for i := range all {
		all[i].Since = all[i].Since.UTC().Truncate(time.Second) // for people, and for JSON
		// Discovery joins errors that have one cause.
		all[i].Message, _, _ = strings.Cut(all[i].Message, "\n")
		all[i].Message = warning.Shorten(all[i].Message, warning.MaxCause)
	}
	return all
}

// currency returns the problems that make the copy, or a part of it, not current. Resources
// that fail for the same reason share one.
func currency(is Status) (all []Problem) {
	if len(is.Failing) == 0 {
		if is.Err == nil {
			return nil
		}
		return []Problem{{Reason: string(TroubleOf(is.Err)), Since: is.Since, Message: is.Err.Error()}}
	}
	at := map[Trouble]int{}
	for _, r := range is.Failing {
		err := cmp.Or(r.Reflector.Err, is.Err)
		if err == nil {
			continue
		}
		reason := TroubleOf(err)
		i, ok := at[reason]
		if !ok {
			i = len(all)
			at[reason] = i
			all = append(all, Problem{Reason: string(reason), Since: FailingSince(&r), Message: err.Error()})
		}
		p := &all[i]
		if since := FailingSince(&r); since.Before(p.Since) {
			p.Since = since
		}
		if len(p.Resources) < maxNamed {
			p.Resources = append(p.Resources, r.Resource.GroupResource().String())
		} else {
			p.More++
		}
	}
	// If everything fails for one reason, the cluster does.
	if len(all) == 1 && len(is.Failing) == is.Resources {
		all[0].Resources, all[0].More = nil, 0
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	return all
}

// probed returns the problems that a request for the version has shown.
func probed(s Status) (all []Problem) {
	if s.Probe.IsSkewed() {
		all = append(all, Problem{
			Reason: ClockSkew, Message: "the clock of the API server is " + difference(s.Probe.Skew),
		})
	}
	if s.Probe.IsSlow() {
		all = append(all, Problem{
			Reason: Slow,
			Message: fmt.Sprintf("the API server took %s to answer a request for its version",
				s.Probe.Took.Round(100*time.Millisecond)),
		})
	}
	if s.Probe.IsNewer() {
		all = append(all, Problem{Reason: ClusterIsNewer, Message: newer(s)})
	}
	return all
}

// difference returns a difference of clocks for people.
func difference(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%s behind", -d)
	}
	return fmt.Sprintf("%s ahead", d)
}

// replacement describes which cluster had the name before.
func replacement(now, was upstream.Identity) string {
	if now.Endpoint != was.Endpoint {
		return fmt.Sprintf("the name led to another API server before, %s", was.Endpoint)
	}
	return fmt.Sprintf("another cluster now has the address: its UID is %s, and was %s", cmp.Or(now.UID, "not known"),
		was.UID)
}

// newer describes a cluster that is newer than this program.
func newer(is Status) string {
	text := fmt.Sprintf("the cluster has Kubernetes %s, and this program has the types of 1.%d", is.Probe.Version,
		KubernetesMinor)
	if n := len(is.JSON); n > 0 {
		text += fmt.Sprintf("; %d resources are read as JSON", n)
	}
	return text
}

// Reasons returns the reasons of problems, each once.
func Reasons(all []Problem) []string {
	var names []string
	for i := range all {
		if !slices.Contains(names, all[i].Reason) {
			names = append(names, all[i].Reason)
		}
	}
	return names
}
