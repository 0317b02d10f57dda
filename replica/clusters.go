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
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// serveClusters answers with the clusters that the request selects by their labels, and the
// state of each.
func (s *Server) serveClusters(w http.ResponseWriter, r *http.Request, seen *audience.Visible) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		respond.Error(w, r, apierrors.NewBadRequest("labelSelector: "+err.Error()))
		return
	}
	response := document.Clusters{Version: s.opts.Version, Clusters: []document.Cluster{}}
	if seen.IsWhole() {
		response.Process = &document.Process{Memory: processMemory(), Readers: s.all.traffic.Watches.Load()}
		if s.opts.Problems != nil {
			response.Process.Problems = s.opts.Problems()
		}
		if s.opts.Membership != nil {
			response.Process.Membership = s.opts.Membership()
		}
	}
	if s.opts.Peers != nil && s.opts.Peers.Reports != nil {
		response.Replicas = peersSeen(s.opts.Peers.Reports(), seen)
	}
	for _, m := range seen.Members {
		if selector.Matches(labels.Set(m.Labels())) {
			response.Clusters = append(response.Clusters, s.clusterState(m))
		}
	}
	body, err := json.Marshal(response)
	if err != nil {
		respond.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	warning.Add(w.Header(), seen.Warnings("")...)
	w.Header().Set("Content-Type", encode.JSON.MediaType())
	_, _ = w.Write(append(body, '\n'))
}

// clusterState returns the state of a member.
func (s *Server) clusterState(m *fleet.Member) document.Cluster {
	is := m.Status()
	one := document.Cluster{
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
