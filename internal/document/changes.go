// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package document

import (
	"cmp"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/jsondiff"
)

// ChangeList is the response to a request for the changes of objects.
type ChangeList struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Since is when the changes begin: later than requested if the files do not reach back so
	// far, or if the namespace was created later. Below /fleet it is the earliest of these times
	// of all clusters.
	Since time.Time `json:"since"`
	// Clusters are, below /fleet, the clusters that have less than what was requested.
	Clusters []PartialCluster `json:"clusters,omitempty"`
	// Items are in the order in which they arrived. It is the last field, so that they can be
	// written while they are read.
	Items []Change `json:"items"`
}

// PartialCluster is a cluster whose past is not complete in a response below /fleet.
type PartialCluster struct {
	Name string `json:"name"`
	// Since is when its changes begin, nil if it has none in the response. In a [ChangeSummary]
	// it is nil too if they begin as requested.
	Since *time.Time `json:"since,omitempty"`
	// Hidden and Missing are those of the cluster, see [ChangeSummary].
	Hidden  int `json:"hidden,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Message is why the cluster is left out.
	Message string `json:"message,omitempty"`
}

// Change is a change of an object in the past.
type Change struct {
	// Type is ADDED, MODIFIED or DELETED. MISSING means that changes are missing here.
	Type string `json:"type"`
	// Cluster is set below /fleet.
	Cluster string `json:"cluster,omitempty"`
	// Time is when the change arrived. For MISSING it is the time of the last known state before
	// the missing changes, or the beginning of the period. Relisted means that it happened some time before,
	// during an interruption of the watch.
	Time     time.Time `json:"time"`
	Relisted bool      `json:"relisted,omitempty"`
	// ResourceVersion is that of the change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	// Managers are the field managers that made the change: several if it is not known which
	// of them did.
	Managers []string `json:"managers,omitempty"`
	// Differences are those between the states before and after the change, without
	// resourceVersion and managedFields.
	Differences []jsondiff.Difference `json:"differences,omitempty"`
	// Unknown means that the state before the change is not known.
	Unknown bool `json:"unknown,omitempty"`
	// Message is why changes are missing.
	Message string `json:"message,omitempty"`
}

// ChangesPath is the path below the root of the API of a cluster, or of the fleet, with the
// numbers of changes. Its parameters are since, until and by, and below /fleet a labelSelector
// for clusters. A caller needs the right to get the path. Counted are the resources that the
// caller may list in all namespaces.
const ChangesPath = "/changes"

// ChangeSummary is the response at [ChangesPath]: how many changes there were.
type ChangeSummary struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Since is when the changes begin: later than requested if the files of no counted resource
	// reach back so far. Below /fleet it is the earliest of these times of all clusters.
	Since time.Time `json:"since"`
	// Hidden is how many resources the caller may not list, or for which the cluster did not decide
	// in time. Missing is how often changes are
	// missing in the files.
	Hidden  int `json:"hidden,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Clusters are, below /fleet, the clusters whose changes begin later than requested, those
	// with something hidden or missing, and those that are left out. They have the numbers
	// instead of Hidden and Missing.
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
