// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DivergenceKind is how an object of a copy differs from the API server.
type DivergenceKind string

const (
	// DivergenceMissing means that the copy does not have an object.
	DivergenceMissing DivergenceKind = "missing"
	// DivergenceExtra means that the copy has an object that does not exist.
	DivergenceExtra DivergenceKind = "extra"
	// DivergenceStale means that the copy has an older version of an object.
	DivergenceStale DivergenceKind = "stale"
	// DivergenceAhead means that the copy has a newer version of an object than the server:
	// etcd was restored from a backup, and that was not detected.
	DivergenceAhead DivergenceKind = "ahead"
	// DivergenceWrong means that the copy has another object, or other content, with the
	// same version.
	DivergenceWrong DivergenceKind = "wrong"
)

// Divergence is one object in which a copy differs from the API server.
type Divergence struct {
	Kind DivergenceKind
	// Key is "namespace/name", or "name" for an object without a namespace.
	Key string
	// Server and Copy are the versions of the object, 0 where it does not exist.
	Server, Copy uint64
}

// String returns the divergence on one line, for people: it may change.
func (d Divergence) String() string {
	version := func(v uint64) string {
		if v == 0 {
			return "does not exist"
		}
		return fmt.Sprintf("is at version %d", v)
	}
	return fmt.Sprintf("%s: %s; it %s in the cluster and %s in the copy", d.Key, d.Kind, version(d.Server),
		version(d.Copy))
}

// Verification is the result of comparing the copy of a resource with the API server.
type Verification struct {
	// Resource is the resource that was compared.
	Resource schema.GroupVersionResource
	// Version is the server's version that was compared: the state that the copy had at
	// this version, and the state that the server returned for it.
	Version uint64
	// At is when the comparison ended, and Took how long it took.
	At   time.Time
	Took time.Duration
	// Deep means that the content of the objects was compared too.
	Deep bool
	// Objects is how many objects the server has, and Bytes their approximate size in the
	// form in which it sent them.
	Objects int
	Bytes   int64
	// Undecided is how many objects could not be compared. It is 0 unless the server did not
	// return the version that was requested, or an object of its list could not be read.
	Undecided int
	// Counts has the number of divergences of each kind that has any.
	Counts map[DivergenceKind]int
	// Examples are the first divergences, at most [Options.Examples].
	Examples []Divergence
	// Repair is the comparison after the resource was listed again, nil if that was not
	// necessary, not requested, or has failed.
	Repair *Verification
}

// Divergences returns how many objects of the copy differ from the server.
func (v *Verification) Divergences() int {
	n := 0
	for _, count := range v.Counts {
		n += count
	}
	return n
}

// Diverges reports whether the copy differs from the server, as far as it is known: it
// differed, and was not repaired. It returns false for nil.
func (v *Verification) Diverges() bool {
	switch {
	case v == nil:
		return false
	case v.Repair != nil:
		return v.Repair.Diverges()
	}
	return v.Divergences() > 0
}

// String returns the result on one line, for people: it may change.
func (v *Verification) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at version %d: %d objects", v.Resource.GroupResource(), v.Version, v.Objects)
	if v.Divergences() == 0 {
		b.WriteString(", no divergence")
	}
	for _, kind := range slices.Sorted(maps.Keys(v.Counts)) {
		fmt.Fprintf(&b, ", %d %s", v.Counts[kind], kind)
	}
	if v.Undecided > 0 {
		fmt.Fprintf(&b, ", %d undecided", v.Undecided)
	}
	return b.String()
}
