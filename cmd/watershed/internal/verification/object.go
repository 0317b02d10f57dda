// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verification

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is the resource of verifications.
var Resource = schema.GroupVersionResource{Group: "watershed.dev", Version: "v1alpha1", Resource: "verifications"}

const kind = "Verification"

// Path is the path of the resource below the root of the fleet's API.
const Path = "/apis/watershed.dev/v1alpha1/verifications"

// Verification selects copies to compare with their clusters, and has the results.
type Verification struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// New returns a verification as a client sends it.
func New(spec Spec) *Verification {
	v := &Verification{Spec: spec}
	v.APIVersion, v.Kind = Resource.GroupVersion().String(), kind
	return v
}

// DeepCopyObject implements [runtime.Object].
func (v *Verification) DeepCopyObject() runtime.Object {
	next := *v
	v.DeepCopyInto(&next.ObjectMeta)
	next.Spec.Clusters, next.Spec.Resources = slices.Clone(v.Spec.Clusters), slices.Clone(v.Spec.Resources)
	next.Status.Results = slices.Clone(v.Status.Results) // results are not modified
	return &next
}

// Spec selects what to compare, and how.
type Spec struct {
	// Clusters are the names of clusters. Default: all that the caller may verify.
	Clusters []string `json:"clusters,omitempty"`
	// Resources are names such as pods or deployments.apps. Default: all.
	Resources []string `json:"resources,omitempty"`
	// Deep compares the content of the objects too.
	Deep bool `json:"deep,omitempty"`
	// Repair lists a resource again if its copy differs from the cluster.
	Repair bool `json:"repair,omitempty"`
	// Replicas compares the copies with the copies of the other replicas of the group, instead of
	// with the clusters. It excludes Deep and Repair.
	Replicas bool `json:"replicas,omitempty"`
}

// Status has the results.
type Status struct {
	Results []Result `json:"results"`
}

// AllResources is the resource of a result about a cluster that was never read: its resources
// are not known.
const AllResources = "*"

// Result is the comparison of one resource of one cluster.
type Result struct {
	Cluster string `json:"cluster"`
	// Resource is a name such as pods or deployments.apps, or [AllResources].
	Resource string `json:"resource"`
	// Replica is the other replica of the group, "" if the copy was compared with the cluster.
	Replica string `json:"replica,omitempty"`
	// Error is why there is no result, "" if there is one.
	Error string `json:"error,omitempty"`
	// Version is the resourceVersion that was compared.
	Version string `json:"version,omitempty"`
	// Objects is how many objects the cluster or the other replica has, and Bytes the approximate size of what it
	// sent.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Seconds is how long the comparison took, without the repair.
	Seconds float64 `json:"seconds"`
	// Divergences has the number of divergences by kind: missing, extra, stale, ahead or
	// wrong.
	Divergences map[string]int `json:"divergences,omitempty"`
	// Undecided is how many objects could not be compared.
	Undecided int `json:"undecided,omitempty"`
	// Examples are some of the divergences.
	Examples []Example `json:"examples,omitempty"`
	// Remaining is how many divergences are left after the repair, nil if there was none.
	Remaining *int `json:"remaining,omitempty"`
}

// Diverged returns how many objects of the copy differed from the cluster.
func (r *Result) Diverged() int {
	n := 0
	for _, count := range r.Divergences {
		n += count
	}
	return n
}

// Example is one object in which a copy differs from its cluster.
type Example struct {
	Kind string `json:"kind"`
	// Key is NAMESPACE/NAME, or NAME for an object without a namespace. It is "" for an object that only
	// the other replica has: replicas tell each other no names.
	Key string `json:"key"`
	// Cluster and Copy are the versions of the object, "" where it does not exist. Cluster is that of
	// the other replica, if there is one.
	Cluster string `json:"cluster,omitempty"`
	Copy    string `json:"copy,omitempty"`
}
