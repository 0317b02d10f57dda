// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import "github.com/watershed-project/watershed/wire"

// Memory is how an informer keeps objects that nobody looks at: a choice between
// memory and processor time. Either way it keeps some values that were decoded
// lately, for who looks again.
type Memory int

const (
	// Fast keeps objects as the server sent them.
	Fast Memory = iota
	// Packed keeps objects compressed, with a dictionary made of the resource's
	// own: a pod of 5 KB in 0.6 KB, and when it has not changed for half a minute in
	// 0.45 KB. Each new state costs some 10 us more, each look at one that is not
	// decoded 2 to 10 us more. Names, versions and labels are read without
	// unpacking.
	Packed
)

// recent is what is kept of decoded values.
func (m Memory) recent() *wire.Recent {
	if m == Packed {
		return wire.NewRecent(4 << 20)
	}
	return wire.NewRecent(64 << 20)
}
