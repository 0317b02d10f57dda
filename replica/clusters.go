// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"net/http"
	"runtime/metrics"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// Clusters is the document at /clusters: the clusters that the caller sees.
type Clusters struct {
	// Version describes the program, see [Options.Version].
	Version string `json:"version,omitempty"`
	// Process describes the process. Only callers that see all clusters receive it.
	Process *Process `json:"process,omitempty"`
	// Clusters are sorted by name.
	Clusters []ClusterState `json:"clusters"`
}

// Process is the state of the process in the document at /clusters.
type Process struct {
	// Memory is how many bytes the process has from the operating system.
	Memory uint64 `json:"memory"`
	// Readers counts the watches below /fleet.
	Readers int64 `json:"readers"`
	// Problems are the problems of the program itself, see [Options.Problems].
	Problems []fleet.Problem `json:"problems,omitempty"`
}

// ClusterState is a cluster in the document at /clusters.
type ClusterState struct {
	Name string `json:"name"`
	// Aliases are other names, which also lead to the cluster.
	Aliases []string `json:"aliases,omitempty"`
	// Labels are those of the cluster in its directory.
	Labels map[string]string `json:"labels,omitempty"`
	// UID is that of the namespace kube-system, empty if it cannot be read: then another
	// cluster at the same address is not noticed.
	UID string `json:"uid,omitempty"`
	// Version is that of the API server, "" if it is not known.
	Version string `json:"version,omitempty"`
	// Scope is the part that is mirrored, if it is not the whole cluster.
	Scope string `json:"scope,omitempty"`
	State string `json:"state"`
	// Since is when the cluster ceased to be current if it is stale, else when it joined.
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error,omitempty"`
	// Reason is the cause of Error, see [fleet.Trouble].
	Reason    string `json:"reason,omitempty"`
	Synced    int    `json:"synced"`
	Resources int    `json:"resources"`
	Objects   int    `json:"objects"`
	// Expected is how many objects there will be after the first sync, as far as it is known.
	Expected int `json:"expected,omitempty"`
	// Memory is about how many bytes the objects take.
	Memory int64 `json:"memory"`
	// Readers counts the watches of this cluster that are open. Those of the whole fleet are
	// not included.
	Readers int64 `json:"readers"`
	// Queued is how many changes were received and are not applied yet.
	Queued int `json:"queued,omitempty"`
	// Heard is when the cluster last sent something for any resource. Quiet is the same time for
	// the resource that has been silent longest.
	Heard time.Time `json:"heard,omitzero"`
	Quiet time.Time `json:"quiet,omitzero"`
	// Latency is how long the API server took to answer the last probe, and ClockSkew how far
	// its clock is ahead, in seconds.
	Latency   float64 `json:"latencySeconds,omitempty"`
	ClockSkew float64 `json:"clockSkewSeconds,omitempty"`
	// JSON are the resources in [fleet.Status.JSON].
	JSON []string `json:"json,omitempty"`
	// Problems are the causes for concern, the most serious first. A cluster that is live can
	// have some.
	Problems []fleet.Problem `json:"problems,omitempty"`
	// Diverged are the resources in [fleet.Status.Diverged].
	Diverged []string `json:"diverged,omitempty"`
}

// serveClusters answers with the clusters that the request selects by their labels, and the
// state of each.
func (s *Server) serveClusters(w http.ResponseWriter, r *http.Request, seen *audience.Visible) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		respond.Error(w, r, apierrors.NewBadRequest("labelSelector: "+err.Error()))
		return
	}
	document := Clusters{Version: s.opts.Version, Clusters: []ClusterState{}}
	if seen.IsWhole() {
		document.Process = &Process{Memory: processMemory(), Readers: s.all.traffic.Watches.Load()}
		if s.opts.Problems != nil {
			document.Process.Problems = s.opts.Problems()
		}
	}
	for _, m := range seen.Members {
		if selector.Matches(labels.Set(m.Labels())) {
			document.Clusters = append(document.Clusters, s.clusterState(m))
		}
	}
	body, err := json.Marshal(document)
	if err != nil {
		respond.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	warning.Add(w.Header(), seen.Warnings("")...)
	w.Header().Set("Content-Type", encode.JSON.MediaType())
	_, _ = w.Write(append(body, '\n'))
}

// clusterState returns the state of a member.
func (s *Server) clusterState(m *fleet.Member) ClusterState {
	is := m.Status()
	one := ClusterState{
		Name: m.Name(), Aliases: m.Aliases(), Labels: m.Labels(), UID: is.Identity.UID,
		Version: warning.Shorten(is.Probe.Version, warning.MaxName), State: is.State.String(),
		Since: second(is.Since), Synced: is.Synced, Resources: is.Resources, Objects: is.Objects,
		Memory: m.Memory(), Readers: s.cluster(m).traffic.Watches.Load(), Queued: is.Queued,
		Heard: second(is.Heard), Quiet: second(is.Quiet),
		Latency: is.Probe.Took.Seconds(), ClockSkew: is.Probe.Skew.Seconds(), Problems: is.Problems(),
	}
	if is.Synced < is.Resources {
		one.Expected = is.Expected
	}
	for _, r := range is.JSON {
		one.JSON = append(one.JSON, r.String())
	}
	for _, r := range is.Diverged {
		one.Diverged = append(one.Diverged, r.Resource.GroupResource().String())
	}
	if !is.Scope.Whole() {
		one.Scope = is.Scope.String()
	}
	if is.Err != nil {
		one.Error = warning.Shorten(is.Err.Error(), warning.MaxCause)
		one.Reason = string(fleet.TroubleOf(is.Err))
	}
	return one
}

// processMemory returns how many bytes the Go runtime has from the operating system.
func processMemory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// second returns a time in UTC without the part of a second, for people.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
