// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package document

import (
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// Clusters is the document at /clusters: the clusters that the caller sees.
type Clusters struct {
	// Version describes the program.
	Version string `json:"version,omitempty"`
	// Process describes the process. Only callers that see all clusters receive it.
	Process *Process `json:"process,omitempty"`
	// Clusters are sorted by name.
	Clusters []Cluster `json:"clusters"`
	// Replicas are the other replicas of the group of this one.
	Replicas []Replica `json:"replicas,omitempty"`
}

// Replica is another replica of a group in the document at /clusters.
type Replica struct {
	Name string `json:"name"`
	// Address is where the replica listens for others, and Error is why it is not connected. Only
	// callers that see all clusters receive them.
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
	// Connected means that both replicas can send to each other.
	Connected bool `json:"connected"`
	// Version describes the program of the replica, and Reported is when its last report arrived.
	Version  string    `json:"version,omitempty"`
	Reported time.Time `json:"reported,omitzero"`
	// Clusters are its clusters, as far as the caller sees them at this replica.
	Clusters []ReplicaCluster `json:"clusters,omitempty"`
}

// ReplicaCluster is a cluster of another replica.
type ReplicaCluster struct {
	Name string `json:"name"`
	// State, Synced, Resources and Objects are what [Cluster] has of them, at the other replica.
	State     string `json:"state,omitempty"`
	Synced    int    `json:"synced"`
	Resources int    `json:"resources"`
	Objects   int    `json:"objects"`
	// Behind is by how many versions of the cluster the copy of the other replica was behind that
	// of this one when it reported. It is negative if this one was behind.
	Behind int64 `json:"behind"`
	// Difference is "", or how the replicas differ in their clusters.
	Difference string `json:"difference,omitempty"`
}

// The values of [ReplicaCluster.Difference].
const (
	// OnlyThere and OnlyHere mean that one of both replicas does not have the cluster.
	OnlyThere = "only there"
	OnlyHere  = "only here"
	// OtherCluster means that the name is that of another cluster there.
	OtherCluster = "another cluster"
)

// Process is the state of the process in the document at /clusters.
type Process struct {
	// Memory is how many bytes the process has from the operating system.
	Memory uint64 `json:"memory"`
	// Readers counts the watches below /fleet.
	Readers int64 `json:"readers"`
	// Problems are the problems of the program itself.
	Problems []fleet.Problem `json:"problems,omitempty"`
	// Membership is the state of the process in its replica group, nil without one.
	Membership *Membership `json:"membership,omitempty"`
}

// Membership is the state of a process in its replica group.
type Membership struct {
	Group string `json:"group"`
	// Holder is the random ID of the process.
	Holder string `json:"holder"`
	// Slot is the slot of versions of /fleet, if Owned.
	Slot  int  `json:"slot"`
	Owned bool `json:"owned"`
	// Renewed is whether the process holds its Lease for certain, and Age the time since the last
	// renewal.
	Renewed bool    `json:"renewed"`
	Age     float64 `json:"ageSeconds"`
	// Bound is how far the bound of versions is ahead of the time of the group cluster.
	Bound float64 `json:"boundSeconds"`
	// Ahead is how far the newest version of /fleet that a client has received is ahead of that time. The
	// difference between two replicas is how far two lists without a version can be apart.
	Ahead float64 `json:"versionsAheadSeconds"`
	// ClockSkew is how far the clock of the group cluster is ahead of the process's.
	ClockSkew float64 `json:"clockSkewSeconds"`
	// Peers are the other live replicas, sorted by slot.
	Peers []Peer `json:"peers"`
}

// Peer is another replica of the group.
type Peer struct {
	Holder string `json:"holder"`
	Slot   int    `json:"slot"`
}

// Cluster is a cluster in the document at /clusters.
type Cluster struct {
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
