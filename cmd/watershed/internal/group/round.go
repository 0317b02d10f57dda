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
func (r *Replica) round(ctx context.Context) error {
	if err := r.connect(); err != nil {
		return err
	}
	if r.own != nil {
		if err := r.renew(ctx); err != nil {
			return err
		}
	}
	if err := r.observe(ctx); err != nil {
		return err
	}
	if r.own == nil {
		return r.acquire(ctx)
	}
	r.tidy(ctx)
	return nil
}

// renew writes the Lease with a bound that is an hour ahead. If it is held by another process, or
// gone, the term ends and renew returns nil.
func (r *Replica) renew(ctx context.Context) error {
	for range attempts {
		now, _ := r.clock.now()
		bound := max(r.Term().Bound(), uint64(now.Add(ahead).UnixMicro()))
		sent := r.clock.elapsed()
		next := r.own.DeepCopy()
		r.write(next, bound, now)
		stored, err := r.client.Update(ctx, next, metav1.UpdateOptions{})
		if err == nil {
			r.hold(stored, bound, sent)
			return nil
		}
		if apierrors.IsConflict(err) {
			var present *coordinationv1.Lease
			if present, err = r.client.Get(ctx, r.own.Name, metav1.GetOptions{}); err == nil {
				if present.UID == r.own.UID && holderOf(present) == r.holder {
					r.own = present // somebody else has modified it
					continue
				}
				r.lose("held by another process")
				return nil
			}
		}
		if apierrors.IsNotFound(err) {
			r.lose("gone")
			return nil
		}
		return fmt.Errorf("lease %s: %w", r.own.Name, err)
	}
	return fmt.Errorf("lease %s is modified all the time", r.own.Name)
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// hold records an acknowledged write of the own Lease.
func (r *Replica) hold(stored *coordinationv1.Lease, bound uint64, sent time.Duration) {
	r.own = stored
	r.renewed.Store(int64(sent))
	r.Term().Extend(bound)
}

// lose ends the term.
func (r *Replica) lose(how string) {
	r.Term().End()
	r.renewed.Store(0)
	r.Logger.Warn("the Lease is lost, another slot is taken", "lease", r.own.Name, "is", how)
	r.own = nil
}

// expired reports whether the holder of a Lease has not renewed it, or has released it.
func (r *Replica) expired(o *observation) bool {
	return o.peer.Holder == "" || r.clock.elapsed()-o.since >= expiry
}

// observe lists the Leases of the group.
func (r *Replica) observe(ctx context.Context) error {
	list, err := r.client.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + r.Group})
	if err != nil {
		return fmt.Errorf("list the Leases of the group: %w", err)
	}
	now, known := r.clock.now()
	if !known {
		return errors.New("the responses of the group cluster have no Date")
	}
	seen := make(map[string]*observation, len(list.Items))
	for i := range list.Items {
		l := &list.Items[i]
		o := &observation{entry: read(r.Group, l, now), lease: l, since: r.clock.elapsed()}
		if before := r.seen[l.Name]; before != nil && before.lease.UID == l.UID &&
			before.lease.ResourceVersion == l.ResourceVersion {
			o.since = before.since
		}
		seen[l.Name] = o
	}
	r.seen = seen
	r.publish()
	return nil
}

// publish makes what observe has found readable.
func (r *Replica) publish() {
	var peers []Peer
	var ignored []error
	for _, o := range r.seen {
		if o.err != nil {
			ignored = append(ignored, o.err)
		}
		known := o.err == nil || o.peer.Format != Format && o.peer.Format != 0
		if known && o.peer.Holder != r.holder && !r.expired(o) {
			peers = append(peers, o.peer)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Slot, b.Slot) })
	slices.SortFunc(ignored, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	r.mu.Lock()
	same := slices.Equal(r.peers, peers)
	r.peers, r.ignored = peers, ignored
	r.mu.Unlock()
	if !same {
		r.changed.Send()
	}
}

// acquire takes a slot that nobody has, and begins a term.
func (r *Replica) acquire(ctx context.Context) error {
	refused := map[int]bool{}
	var last error
	for range attempts {
		slot, replaced, ok := r.choose(refused)
		if !ok {
			return fmt.Errorf("all %d slots of the group are in use", fleet.GroupSlots)
		}
		taken, err := r.take(ctx, slot, replaced)
		if err == nil {
			return nil
		}
		last = fmt.Errorf("lease %s: %w", leaseName(r.Group, slot), err)
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
func (r *Replica) choose(refused map[int]bool) (slot int, replaced *observation, ok bool) {
	now, _ := r.clock.now()
	occupied := map[int]bool{}
	for _, o := range r.seen {
		occupied[o.peer.Slot] = true
		usable := o.err == nil && r.expired(o) && !r.used[o.peer.Slot] && !refused[o.peer.Slot]
		if usable && (replaced == nil || o.bound < replaced.bound) {
			replaced = o
		}
	}
	if replaced != nil && replaced.bound <= uint64(now.UnixMicro()) {
		return replaced.peer.Slot, replaced, true
	}
	for _, slot := range rand.Perm(fleet.GroupSlots) {
		if !occupied[slot] && !r.used[slot] && !refused[slot] {
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
func (r *Replica) take(ctx context.Context, slot int, replaced *observation) (taken bool, err error) {
	now, _ := r.clock.now()
	// Without a Lease to replace, there may have been one that was deleted while its holder goes
	// on. Its versions have grown with the time for less than expiry.
	after := uint64(now.Add(expiry).UnixMicro())
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName(r.Group, slot), Namespace: r.Namespace}}
	if replaced != nil {
		after, l = replaced.bound, replaced.lease.DeepCopy()
	}
	bound := max(uint64(now.Add(ahead).UnixMicro()), after+uint64(leastRoom.Microseconds()))
	r.write(l, bound, now)
	sent := r.clock.elapsed()
	// The write may succeed without a response: the slot is not used then, and the Lease expires.
	r.used[slot] = true
	if replaced == nil {
		l, err = r.client.Create(ctx, l, metav1.CreateOptions{})
	} else {
		l, err = r.client.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		if taken = apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err); taken {
			delete(r.used, slot)
		}
		return taken, err
	}
	r.term.Store(fleet.NewTerm(slot, after, r.now))
	r.hold(l, bound, sent)
	r.Logger.Info("joined the replica group", "lease", l.Name, "namespace", l.Namespace, "holder", r.holder)
	return false, nil
}

// tidy deletes one Lease that has expired and whose bound has passed: whoever takes its slot begins
// at a later time.
func (r *Replica) tidy(ctx context.Context) {
	now, _ := r.clock.now()
	for _, o := range r.seen {
		if o.err != nil || !r.expired(o) || o.bound >= uint64(now.Add(-margin).UnixMicro()) {
			continue
		}
		at := &metav1.Preconditions{UID: &o.lease.UID, ResourceVersion: &o.lease.ResourceVersion}
		if err := r.client.Delete(ctx, o.lease.Name, metav1.DeleteOptions{Preconditions: at}); err != nil &&
			!apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			r.Logger.Warn("cannot delete an old Lease", "lease", o.lease.Name, "err", err)
		}
		return
	}
}

// release gives the slot up, so that peers notice at once that this process has ended. The bound
// stays.
func (r *Replica) release(ctx context.Context) {
	if r.own == nil {
		return
	}
	bound := r.Term().Bound()
	r.Term().End()
	r.renewed.Store(0)
	next := r.own.DeepCopy()
	set(&next.Annotations, map[string]string{
		boundAnnotation: strconv.FormatUint(bound, 10), addressAnnotation: "", keyAnnotation: "",
	})
	next.Spec.HolderIdentity = nil
	if _, err := r.client.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		r.Logger.Warn("cannot release the Lease: it expires", "lease", next.Name, "err", err)
	}
	r.own = nil
}
