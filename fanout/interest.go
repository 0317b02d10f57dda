// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"fmt"
	"hash/maphash"
	"math"
	"strings"
)

// Value stands for a string in a [Dimension]: its hash, good within the process.
// Two strings may share one, with a chance of one in 2^64; a reader may then see
// a change that does not concern it. Values are numbers so that objects can have
// theirs at hand, computed when they came in, and a change costs no hashing.
type Value uint64

// AnyValue is the value of an object whose value in a dimension cannot be determined.
// A change of such an object concerns every reader in the dimension.
const AnyValue Value = math.MaxUint64

var seed = maphash.MakeSeed()

// ValueOf is the value of a string.
func ValueOf(s string) Value { return Value(maphash.String(seed, s)) }

// Interest says which changes can concern a reader. The zero value is
// everything. It is a coarse filter: a reader with several conditions picks the
// one that matches least and checks the others itself.
type Interest struct {
	dimension string
	value     string
}

// The two dimensions every log has, by names no other can have.
const (
	byKey       = "\x00key"
	byNamespace = "\x00namespace"
)

// Everything is an interest in all changes.
func Everything() Interest { return Interest{} }

// Key is an interest in one object.
func Key(key string) Interest { return Interest{byKey, key} }

// Namespace is an interest in the objects whose keys are "namespace/…".
func Namespace(namespace string) Interest { return Interest{byNamespace, namespace} }

// In is an interest in objects that have, or had before the change, the value in a
// dimension of the log: one of [Options.Dimensions], or one that [Options.Open] adds.
func In(dimension, value string) Interest { return Interest{dimension, value} }

// Dimension returns the name of the dimension for an interest made by [In].
func (i Interest) Dimension() string { return i.dimension }

// String is for people: "everything", "key a/b", "namespace a", "label app=x".
func (i Interest) String() string {
	if i == (Interest{}) {
		return "everything"
	}
	return fmt.Sprintf("%s %s", strings.TrimPrefix(i.dimension, "\x00"), i.value)
}

// Dimension is a way to be interested in objects: by label, by an indexed field.
type Dimension[T any] struct {
	Name string
	// Values returns the values that an object has in the dimension, in a slice
	// that is neither changed nor kept; best is one that the object has at hand,
	// and shares with the states before and after it. It is called while a change
	// is published, for the old and the new state, but only if somebody waits in
	// the dimension, and when such a reader reads. It must not panic: the
	// publisher would.
	Values func(obj T) []Value
	// Value, if Values is nil, returns the one value that an object has in the
	// dimension, or [AnyValue]. It is called like Values, but once for each state of a
	// change: the log keeps the results, 16 bytes for each change in the window that a
	// reader has waited for or read.
	Value func(obj T) Value
}
