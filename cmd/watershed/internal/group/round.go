// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
)

// attempts is how many Leases a round tries to take. Another process takes one first only if it
// starts at the same moment.
const attempts = 5

// round renews the Lease, reads all Leases of the group, and takes one if this process has none.
func (m *Member) round(ctx context.Context) error {
	if err := m.connect(); err != nil {
		return err
	}
	if m.own != nil {
		if err := m.renew(ctx); err != nil {
			return err
		}
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	if m.own == nil {
		return m.acquire(ctx)
	}
	m.tidy(ctx)
	return nil
}

// renew writes the Lease with a bound that is an hour ahead. If it is held by another process, or
// gone, the term ends and renew returns nil.
func (m *Member) renew(ctx context.Context) error {
	for range attempts {
		now, _ := m.clock.now()
		bound := max(m.Term().Bound(), uint64(now.Add(ahead).UnixMicro()))
		sent := m.clock.elapsed()
		next := m.own.DeepCopy()
		m.write(next, bound, now)
		stored, err := m.client.Update(ctx, next, metav1.UpdateOptions{})
		if err == nil {
			m.hold(stored, bound, sent)
			return nil
		}
		if apierrors.IsConflict(err) {
			var present *coordinationv1.Lease
			if present, err = m.client.Get(ctx, m.own.Name, metav1.GetOptions{}); err == nil {
				if present.UID == m.own.UID && holderOf(present) == m.holder {
					m.own = present // somebody else has modified it
					continue
				}
				m.lose("held by another process")
				return nil
			}
		}
		if apierrors.IsNotFound(err) {
			m.lose("gone")
			return nil
		}
		return fmt.Errorf("lease %s: %w", m.own.Name, err)
	}
	return fmt.Errorf("lease %s is modified all the time", m.own.Name)
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// hold records an acknowledged write of the own Lease.
func (m *Member) hold(stored *coordinationv1.Lease, bound uint64, sent time.Duration) {
	m.own = stored
	m.renewed.Store(int64(sent))
	m.Term().Extend(bound)
}

// lose ends the term.
func (m *Member) lose(how string) {
	m.Term().End()
	m.renewed.Store(0)
	m.Logger.Warn("the Lease is lost, another slot is taken", "lease", m.own.Name, "is", how)
	m.own = nil
}

// expired reports whether the holder of a Lease has not renewed it, or has released it.
func (m *Member) expired(o *observation) bool {
	return o.peer.Holder == "" || m.clock.elapsed()-o.since >= expiry
}

// observe lists the Leases of the group.
func (m *Member) observe(ctx context.Context) error {
	list, err := m.client.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + m.Group})
	if err != nil {
		return fmt.Errorf("list the Leases of the group: %w", err)
	}
	now, known := m.clock.now()
	if !known {
		return errors.New("the responses of the group cluster have no Date")
	}
	seen := make(map[string]*observation, len(list.Items))
	for i := range list.Items {
		l := &list.Items[i]
		o := &observation{entry: read(m.Group, l, now), lease: l, since: m.clock.elapsed()}
		if before := m.seen[l.Name]; before != nil && before.lease.UID == l.UID &&
			before.lease.ResourceVersion == l.ResourceVersion {
			o.since = before.since
		}
		seen[l.Name] = o
	}
	m.seen = seen
	m.publish()
	return nil
}

// publish makes what observe has found readable.
func (m *Member) publish() {
	var peers []Peer
	var ignored []error
	for _, o := range m.seen {
		if o.err != nil {
			ignored = append(ignored, o.err)
		}
		known := o.err == nil || o.peer.Format != Format && o.peer.Format != 0
		if known && o.peer.Holder != m.holder && !m.expired(o) {
			peers = append(peers, o.peer)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Slot, b.Slot) })
	slices.SortFunc(ignored, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	m.mu.Lock()
	same := slices.Equal(m.peers, peers)
	m.peers, m.ignored = peers, ignored
	m.mu.Unlock()
	if !same {
		m.changed.Send()
	}
}

// acquire takes a slot that nobody has, and begins a term.
func (m *Member) acquire(ctx context.Context) error {
	refused := map[int]bool{}
	var last error
	for range attempts {
		slot, replaced, ok := m.choose(refused)
		if !ok {
			return fmt.Errorf("all %d slots of the group are in use", fleet.GroupSlots)
		}
		taken, err := m.take(ctx, slot, replaced)
		if err == nil {
			return nil
		}
		last = fmt.Errorf("lease %s: %w", leaseName(m.Group, slot), err)
		if !taken {
			return last
		}
		refused[slot] = true
	}
	return last
}

// choose returns a slot to take, with the Lease to replace, nil if there is none. A Lease
// whose bound has passed comes first, then a slot without one, so that bounds do not grow with
// every restart, and then the Lease with the lowest bound.
func (m *Member) choose(refused map[int]bool) (slot int, replaced *observation, ok bool) {
	now, _ := m.clock.now()
	occupied := map[int]bool{}
	for _, o := range m.seen {
		occupied[o.peer.Slot] = true
		usable := o.err == nil && m.expired(o) && !m.used[o.peer.Slot] && !refused[o.peer.Slot]
		if usable && (replaced == nil || o.bound < replaced.bound) {
			replaced = o
		}
	}
	if replaced != nil && replaced.bound <= uint64(now.UnixMicro()) {
		return replaced.peer.Slot, replaced, true
	}
	for _, slot := range rand.Perm(fleet.GroupSlots) {
		if !occupied[slot] && !m.used[slot] && !refused[slot] {
			return slot, nil, true
		}
	}
	if replaced == nil {
		return 0, nil, false
	}
	return replaced.peer.Slot, replaced, true
}

// take writes this process into the Lease of a slot, and begins a term. The result taken means that
// somebody else has the Lease.
func (m *Member) take(ctx context.Context, slot int, replaced *observation) (taken bool, err error) {
	now, _ := m.clock.now()
	// Without a Lease to replace, there may have been one that was deleted while its holder goes
	// on. Its versions have grown with the time for less than expiry.
	after := uint64(now.Add(expiry).UnixMicro())
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName(m.Group, slot), Namespace: m.Namespace}}
	if replaced != nil {
		after, l = replaced.bound, replaced.lease.DeepCopy()
	}
	bound := max(uint64(now.Add(ahead).UnixMicro()), after+uint64(leastRoom.Microseconds()))
	m.write(l, bound, now)
	sent := m.clock.elapsed()
	// The write may succeed without a response: the slot is not used then, and the Lease expires.
	m.used[slot] = true
	if replaced == nil {
		l, err = m.client.Create(ctx, l, metav1.CreateOptions{})
	} else {
		l, err = m.client.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		if taken = apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err); taken {
			delete(m.used, slot)
		}
		return taken, err
	}
	m.term.Store(fleet.NewTerm(slot, after, m.now))
	m.hold(l, bound, sent)
	m.Logger.Info("joined the replica group", "lease", l.Name, "namespace", l.Namespace, "holder", m.holder)
	return false, nil
}

// tidy deletes one Lease that has expired and whose bound has passed: whoever takes its slot begins
// at a later time.
func (m *Member) tidy(ctx context.Context) {
	now, _ := m.clock.now()
	for _, o := range m.seen {
		if o.err != nil || !m.expired(o) || o.bound >= uint64(now.Add(-margin).UnixMicro()) {
			continue
		}
		at := &metav1.Preconditions{UID: &o.lease.UID, ResourceVersion: &o.lease.ResourceVersion}
		if err := m.client.Delete(ctx, o.lease.Name, metav1.DeleteOptions{Preconditions: at}); err != nil &&
			!apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			m.Logger.Warn("cannot delete an old Lease", "lease", o.lease.Name, "err", err)
		}
		return
	}
}

// release gives the slot up, so that peers notice at once that this process has ended. The bound
// stays.
func (m *Member) release(ctx context.Context) {
	if m.own == nil {
		return
	}
	bound := m.Term().Bound()
	m.Term().End()
	m.renewed.Store(0)
	next := m.own.DeepCopy()
	set(&next.Annotations, map[string]string{
		boundAnnotation: strconv.FormatUint(bound, 10), addressAnnotation: "", keyAnnotation: "",
	})
	next.Spec.HolderIdentity = nil
	if _, err := m.client.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		m.Logger.Warn("cannot release the Lease: it expires", "lease", next.Name, "err", err)
	}
	m.own = nil
}
