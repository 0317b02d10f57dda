// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

// change is one change of a pod.
type change struct {
	kind   changeKind
	pod    uint32
	before uint32 // the version of the pod before, if it existed
	born   uint32 // of the pod that changed
}

type changeKind uint8

const (
	added changeKind = iota
	modified
	deleted
)

var eventNames = [...]string{added: eventAdded, modified: eventModified, deleted: eventDeleted}

// history is a ring of the latest changes. It grows with the changes, up to its limit.
type history struct {
	limit int
	ring  []record
	start int    // where the oldest is
	first uint32 // its version; the versions of the others follow
	// dropped is the version of the last change that was dropped.
	dropped uint32
}

// record is a change in 12 bytes.
type record struct {
	pod    uint32 // with the kind in the two upper bits
	before uint32
	born   uint32
}

// add adds a change with the version after the latest.
func (h *history) add(c change) {
	r := record{pod: c.pod | uint32(c.kind)<<30, before: c.before, born: c.born}
	if len(h.ring) < h.limit {
		h.ring = append(h.ring, r)
		return
	}
	h.ring[h.start] = r
	h.start = (h.start + 1) % len(h.ring)
	h.dropped = h.first
	h.first++
}

// at returns the change with a version, which must be in the history.
func (h *history) at(version uint32) change {
	r := h.ring[(h.start+int(version-h.first))%len(h.ring)]
	return change{kind: changeKind(r.pod >> 30), pod: r.pod & (1<<30 - 1), before: r.before, born: r.born}
}

// forget drops all changes. The next change has the version first.
func (h *history) forget(first uint32) {
	if n := len(h.ring); n > 0 {
		h.dropped = h.first + uint32(n) - 1
	}
	h.ring, h.start, h.first = nil, 0, first
}

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
