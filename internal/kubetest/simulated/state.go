// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

// state is the state of an object at a version.
type state struct {
	version uint32 // of its last change; 0 if there is no such object
	born    uint32 // the version that created it; 0 if it was there from the start
}

// snapshot has the states of the pods from lo up to hi at one version.
type snapshot struct {
	version  uint32
	versions []uint32
	first    int               // the number of the first pod
	born     map[uint32]uint32 // nil or a copy
}

func (s *snapshot) state(i int) state {
	return state{version: s.versions[i], born: s.born[uint32(s.first+i)]}
}
