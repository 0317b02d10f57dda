// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"log/slog"
	"sync/atomic"

	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/wire"
)

// decoder decodes the objects of an informer, and reports those that cannot be decoded.
type decoder[T any] struct {
	codec  codec[T]
	logger *slog.Logger
	// reported has the states that could not be decoded.
	reported undecodable.Log
	// failures counts such states for all informers of an engine.
	failures *atomic.Uint64
}

// decode returns the shared value of an object, and false if it cannot be decoded.
func (d *decoder[T]) decode(o *wire.Object) (T, bool) { return d.decoded(o)(d.codec.decode(o)) }

// decodes reports whether an object can be decoded.
func (d *decoder[T]) decodes(o *wire.Object) bool {
	_, ok := d.decode(o)
	return ok
}

// decoded returns a function that reports a failed decoding of an object.
func (d *decoder[T]) decoded(o *wire.Object) func(T, error) (T, bool) {
	return func(value T, err error) (T, bool) {
		d.report(o, err)
		return value, err == nil
	}
}

// report logs and counts a state that cannot be decoded, once per state.
func (d *decoder[T]) report(o *wire.Object, err error) {
	if err != nil && d.reported.First(o) {
		d.failures.Add(1)
		d.logger.Error("object cannot be decoded", "object", o.String(), "err", err)
	}
}
