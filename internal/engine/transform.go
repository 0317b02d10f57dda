// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/wire"
)

// Transform returns the state to store for a received state.
type Transform = func(*wire.Object) (*wire.Object, error)

// Chain returns a Transform that drops fields and then applies the steps in order.
// It returns nil if there is nothing to do.
func Chain(drop wire.Fields, steps ...Transform) Transform {
	steps = slices.DeleteFunc(steps, func(t Transform) bool { return t == nil })
	if drop == 0 && len(steps) == 0 {
		return nil
	}
	return func(o *wire.Object) (*wire.Object, error) {
		o = o.Without(drop)
		for _, step := range steps {
			var err error
			if o, err = step(o); err != nil || o == nil {
				return nil, err
			}
		}
		return o, nil
	}
}

// guarded returns an error if a user's transform panics or returns nil.
func guarded(transform Transform) Transform {
	if transform == nil {
		return nil
	}
	return func(o *wire.Object) (out *wire.Object, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("transform panicked: %v", p)
			}
		}()
		if out, err = transform(o); err == nil && out == nil {
			err = errors.New("transform returned nil")
		}
		return out, err
	}
}
