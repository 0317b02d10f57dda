// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
)

const (
	// label has the name of the group.
	label = "watershed.dev/replica-group"
	// The annotations of a Lease.
	formatAnnotation  = "watershed.dev/format"
	boundAnnotation   = "watershed.dev/bound"
	addressAnnotation = "watershed.dev/peer-address"
	keyAnnotation     = "watershed.dev/peer-key"

	// Format is the format of the annotations. Leases with another one belong to programs of
	// another version: they are peers, but their slots and bounds are left alone.
	Format = 1
	// mostBound is how far a bound may be ahead of the time. One that is further ahead was not
	// written by a replica.
	mostBound = 2 * time.Hour
)

// entry is what a replica reads from a Lease.
type entry struct {
	peer  Peer
	bound uint64
	// err is why the Lease is not one of a replica of this format, nil if it is.
	err error
}

// leaseName returns the name of the Lease of a slot.
func leaseName(group string, slot int) string { return fmt.Sprintf("%s-%d", group, slot) }

// read returns what a Lease of the group says, at a time. Anything can be in a Lease.
func read(group string, l *coordinationv1.Lease, now time.Time) entry {
	number, _ := strings.CutPrefix(l.Name, group+"-")
	slot, err := strconv.Atoi(number)
	if err != nil || slot < 0 || slot >= fleet.GroupSlots || l.Name != leaseName(group, slot) {
		return entry{err: fmt.Errorf("lease %s: its name has no slot of group %s", l.Name, group)}
	}
	e := entry{peer: Peer{Slot: slot, Address: l.Annotations[addressAnnotation], Key: l.Annotations[keyAnnotation]}}
	if l.Spec.HolderIdentity != nil {
		e.peer.Holder = *l.Spec.HolderIdentity
	}
	format := l.Annotations[formatAnnotation]
	if e.peer.Format, err = strconv.Atoi(format); err != nil || e.peer.Format != Format {
		e.err = fmt.Errorf("lease %s: its format is %q, and %d is known", l.Name, format, Format)
		return e
	}
	bound, err := strconv.ParseUint(l.Annotations[boundAnnotation], 10, 64)
	if most := uint64(now.Add(mostBound).UnixMicro()); err != nil || bound > most {
		e.err = fmt.Errorf("lease %s: its bound %q is not a time, or more than %s ahead", l.Name,
			l.Annotations[boundAnnotation], mostBound)
		return e
	}
	e.bound = bound
	return e
}

// write makes this process the holder of a Lease with a bound, at a time.
func (r *Replica) write(l *coordinationv1.Lease, bound uint64, now time.Time) {
	seconds, renewed := int32(expiry/time.Second), metav1.NewMicroTime(now)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != r.holder {
		transitions := int32(0)
		if l.Spec.LeaseTransitions != nil {
			transitions = *l.Spec.LeaseTransitions + 1
		}
		l.Spec.LeaseTransitions, l.Spec.AcquireTime = &transitions, &renewed
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &r.holder, &seconds, &renewed
	set(&l.Labels, map[string]string{label: r.Group})
	set(&l.Annotations, map[string]string{
		formatAnnotation: strconv.Itoa(Format), boundAnnotation: strconv.FormatUint(bound, 10),
		addressAnnotation: r.Address, keyAnnotation: r.Key,
	})
}

// set adds values to labels or annotations. Empty values are removed.
func set(to *map[string]string, values map[string]string) {
	if *to == nil {
		*to = map[string]string{}
	}
	for name, value := range values {
		(*to)[name] = value
		if value == "" {
			delete(*to, name)
		}
	}
}
