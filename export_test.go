// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import "context"

// Settle packs densely what there is now, without waiting for it to be old.
func Settle[T any](i *Informer[T]) {
	l := i.engine.current.Load()
	l.packing.settle(context.Background()) // notes how far it may go
	l.packing.settle(context.Background())
}
