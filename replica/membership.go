// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// minMembershipGap is the least time between two changes that end watches: many clusters may
// join or leave one after the other.
const minMembershipGap = 10 * time.Second

// membership distinguishes sets of members, also if another member takes a name, and reports
// when the members of the fleet have changed. It has some 50 bytes for each member.
type membership struct {
	mu   sync.Mutex
	ids  map[*fleet.Member]uint64
	last uint64
	// set identifies the members at the last check.
	set string
	// changed ends when the members change, and is replaced then. at is when that was.
	changed context.Context
	end     context.CancelFunc
	at      time.Time
}

// change returns a context that ends when the members of the fleet have changed.
func (m *membership) change() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed, m.end = context.WithCancel(context.Background())
	}
	return m.changed
}

// setOf returns an identifier for a set of members, sorted by name. It is never
// view.AllMembers.
func (m *membership) setOf(members []*fleet.Member) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setLocked(members)
}

func (m *membership) setLocked(members []*fleet.Member) string {
	raw := make([]byte, 0, 8*len(members))
	for _, one := range members {
		id := m.ids[one]
		if id == 0 {
			if m.ids == nil {
				m.ids = map[*fleet.Member]uint64{}
			}
			m.last++
			id = m.last
			m.ids[one] = id
		}
		raw = binary.LittleEndian.AppendUint64(raw, id)
	}
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// check compares the members of the fleet with those of the last check, and forgets members
// that have left.
func (m *membership) check(members []*fleet.Member) {
	there := make(map[*fleet.Member]bool, len(members))
	for _, one := range members {
		there[one] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for one := range m.ids {
		if !there[one] {
			delete(m.ids, one)
		}
	}
	set := m.setLocked(readable(members))
	if set == m.set || m.changed != nil && time.Since(m.at) < minMembershipGap {
		return
	}
	m.set = set
	if m.changed != nil {
		m.end()
		m.changed, m.end, m.at = nil, nil, time.Now()
	}
}

// readable returns the members whose names lead to their own objects. While a member
// replaces another one, its name may still lead to those of a cluster that the caller of a
// request may not see.
func readable(members []*fleet.Member) []*fleet.Member {
	some := make([]*fleet.Member, 0, len(members))
	for _, m := range members {
		if !m.Replaces() {
			some = append(some, m)
		}
	}
	return some
}
