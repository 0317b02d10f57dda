// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// clusterState is a cluster in the document at /clusters.
type clusterState struct {
	Name string `json:"name"`
	// Aliases are other names, which also lead to the cluster.
	Aliases []string `json:"aliases,omitempty"`
	// UID is that of the namespace kube-system, empty if it cannot be read: then another
	// cluster at the same address is not noticed.
	UID string `json:"uid,omitempty"`
	// Scope is the part that is mirrored, if it is not the whole cluster.
	Scope     string `json:"scope,omitempty"`
	State     string `json:"state"`
	Since     string `json:"since,omitempty"`
	Error     string `json:"error,omitempty"`
	Synced    int    `json:"synced"`
	Resources int    `json:"resources"`
	Objects   int    `json:"objects"`
	// JSON are the resources in [fleet.Status.JSON].
	JSON []string `json:"json,omitempty"`
}

// serveClusters answers with the clusters and the state of each.
func serveClusters(w http.ResponseWriter, seen *sight) {
	document := struct {
		Clusters []clusterState `json:"clusters"`
	}{Clusters: []clusterState{}}
	for _, m := range seen.members {
		is := m.Status()
		one := clusterState{Name: m.Name(), Aliases: m.Aliases(), UID: is.Identity.UID, State: is.State.String(), Synced: is.Synced, Resources: is.Resources, Objects: is.Objects}
		for _, r := range is.JSON {
			one.JSON = append(one.JSON, r.String())
		}
		if !is.Since.IsZero() {
			one.Since = is.Since.UTC().Format(time.RFC3339)
		}
		if !is.Scope.Whole() {
			one.Scope = is.Scope.String()
		}
		if is.Err != nil {
			one.Error = warning.Shorten(is.Err.Error(), warning.MaxCause)
		}
		document.Clusters = append(document.Clusters, one)
	}
	body, err := json.Marshal(document)
	if err != nil {
		respond.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	warning.Add(w.Header(), seen.warnings("them")...)
	w.Header().Set("Content-Type", encode.JSON.MediaType())
	_, _ = w.Write(append(body, '\n'))
}
