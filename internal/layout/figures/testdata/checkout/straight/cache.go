// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package straight

// Cache is generic: Serve uses a method of an instance of it.
type Cache[T any] struct{ entry Entry[T] }

func (c Cache[T]) Get() T { return c.entry.value }
