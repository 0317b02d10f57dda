// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audience

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fleet"
)

// minMembershipGap is the least time between two changes that end watches: many clusters may
// join or leave one after the other.
const minMembershipGap = 10 * time.Second

// Membership distinguishes sets of members, also if another member takes a name, and reports
// when the members of the fleet or their labels have changed. It has some 50 bytes for each
// member. The zero value is ready to use. All methods are safe for concurrent use.
type Membership struct {
	mu   sync.Mutex
	ids  map[*fleet.Member]uint64
	last uint64
	// members reports changes of the members, and labels also those of their labels.
	members, labels epoch
}

// epoch is the time during which something stays the same. The mu of [Membership] guards it.
type epoch struct {
	// state identifies what it is at the last check.
	state string
	// changed ends when it changes, and is replaced then. It is nil if no watch waits for it.
	// at is when it last ended.
	changed context.Context
	end     context.CancelFunc
	at      time.Time
}

// current returns a context that ends when the epoch does.
func (e *epoch) current() context.Context {
	if e.changed == nil {
		e.changed, e.end = context.WithCancel(context.Background())
	}
	return e.changed
}

// check ends the epoch if the state has changed, but not too often.
func (e *epoch) check(state string) {
	if state == e.state || e.changed != nil && time.Since(e.at) < minMembershipGap {
		return
	}
	e.state = state
	if e.changed != nil {
		e.end()
		e.changed, e.end, e.at = nil, nil, time.Now()
	}
}

// Changed returns a context that ends when the members of the fleet have changed.
func (m *Membership) Changed() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members.current()
}

// Relabelled returns a context that ends when the members of the fleet or their labels have
// changed.
func (m *Membership) Relabelled() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.labels.current()
}

// setOf returns an identifier for a set of members, sorted by name. It is never
// view.AllMembers.
func (m *Membership) setOf(members []*fleet.Member) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.setLocked(members)
}

func (m *Membership) setLocked(members []*fleet.Member) string {
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

// Check compares the members of the fleet with those of the last check, and forgets members
// that have left.
func (m *Membership) Check(members []*fleet.Member) {
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
	m.members.check(set)
	m.labels.check(set + labelsOf(members))
}

// labelsOf returns a digest of the labels of members.
func labelsOf(members []*fleet.Member) string {
	sum := sha256.New()
	for _, m := range members {
		fmt.Fprintf(sum, "%q %q\n", m.Name(), labels.FormatLabels(m.Labels()))
	}
	return string(sum.Sum(nil))
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
