// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package exported declares identifiers of every kind. Sixteen are exported.
package exported

const (
	One, two = 1, 2
	Three    = 3
)

var Variable, variable int

func Function() {}

func function() {}

type Struct struct {
	Field, Another int
	hidden         int
	Embedded
}

type Embedded struct{}

func (Struct) Method() {}

func (*Struct) method() {}

type Generic[K comparable, V any] struct{ Value map[K]V }

func (g *Generic[K, V]) Get() {}

type List[T any] []T

func (List[T]) Len() {}

type Interface interface {
	Called()
	uncalled()
}

type hidden struct{ Field int }

func (hidden) Method() {}
