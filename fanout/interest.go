// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
)

// Value stands for a string in a [Dimension]: its hash, valid within the process. Two
// strings may share one, with a chance of one in 2^64, and a reader may then receive a
// change that does not concern it. Values are numbers, so objects can store theirs when
// they arrive, and a change costs no hashing.
type Value uint64

// AnyValue is the value of an object whose value in a dimension cannot be determined.
// A change of such an object concerns every reader in the dimension.
const AnyValue Value = math.MaxUint64

var seed = maphash.MakeSeed()

// ValueOf returns the value of a string.
func ValueOf(s string) Value { return Value(maphash.String(seed, s)) }

// ErrNoDimension means that the log does not have the dimension of an interest.
var ErrNoDimension = errors.New("log has no such dimension")

// Interest selects the changes that can concern a reader. The zero value selects
// everything. It is a coarse filter: a reader with several conditions uses the one that
// matches least and checks the others itself.
type Interest struct {
	dimension string
	value     string
}

// The two dimensions that every log has. No other dimension can have these names.
const (
	byKey       = "\x00key"
	byNamespace = "\x00namespace"
)

// Everything returns an interest in all changes.
func Everything() Interest { return Interest{} }

// Key returns an interest in one object.
func Key(key string) Interest { return Interest{byKey, key} }

// Namespace returns an interest in the objects whose keys are "namespace/…".
func Namespace(namespace string) Interest { return Interest{byNamespace, namespace} }

// In returns an interest in objects that have, or had before the change, the value in a
// dimension of the log: one of [Options.Dimensions], or one that [Options.Open] adds.
func In(dimension, value string) Interest { return Interest{dimension, value} }

// Dimension returns the name of the dimension for an interest made by [In].
func (i Interest) Dimension() string { return i.dimension }

// String describes the interest for people: "everything", "key a/b", "namespace a",
// "label app=x".
func (i Interest) String() string {
	if i == (Interest{}) {
		return "everything"
	}
	return fmt.Sprintf("%s %s", strings.TrimPrefix(i.dimension, "\x00"), i.value)
}

// Dimension is a property by which readers select objects: a label, or an indexed field.
type Dimension[T any] struct {
	Name string
	// Values returns the values that an object has in the dimension. The slice is neither
	// modified nor kept. It is best if the object stores it and shares it with the states
	// before and after. Values is called for the old and the new state while a change is
	// published, but only if a reader waits in the dimension, and when a reader in it
	// reads. It must not panic, because that would make the publisher panic.
	Values func(obj T) []Value
	// Value, if Values is nil, returns the one value that an object has in the dimension,
	// or [AnyValue]. It is called like Values, but once for each state of a change: the
	// log keeps the results, 16 bytes for each change in the window that a reader has
	// waited for or read.
	Value func(obj T) Value
}
