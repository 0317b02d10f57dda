// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package store

import "github.com/tidwall/btree"

// degree is the degree of the trees. It was measured: see docs/design/0001-store.md.
const degree = 16

// keys maps keys to slots, in key order. It changes when objects are added and deleted,
// not when they are updated.
type keys = btree.Map[string, uint32]

// newKeys returns an empty tree.
func newKeys() *keys { return btree.NewMap[string, uint32](degree) }
