// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package straight

type Entry[T any] struct{ value T }

const limit = "3"
