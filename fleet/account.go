// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// objectOverhead is the memory of an object in the store in bytes, besides the object
	// itself and its key.
	objectOverhead = 128
	// measureShare is the part of a limit that must have arrived before the objects are
	// measured again. The more arrives between two measurements, the less they cost.
	measureShare = 64
	// measureAge is how long a measurement is valid for a cluster that exceeds a limit.
	measureAge = 5 * time.Second
)

// amount is a number of objects and the bytes that they take.
type amount struct{ objects, bytes int64 }

// within reports whether the amount does not exceed a limit. A limit of less than 0 is
// none.
func (a amount) within(limit amount) bool {
	return (limit.objects < 0 || a.objects <= limit.objects) && (limit.bytes < 0 || a.bytes <= limit.bytes)
}

// scale returns the amount times n/d.
func (a amount) scale(n, d int64) amount {
	part := func(x int64) int64 {
		if x < 0 {
			return x
		}
		return x/d*n + x%d*n/d
	}
	return amount{part(a.objects), part(a.bytes)}
}

// counter is an amount that several goroutines change.
type counter struct{ objects, bytes atomic.Int64 }

func (c *counter) add(a amount) amount {
	return amount{c.objects.Add(a.objects), c.bytes.Add(a.bytes)}
}

func (c *counter) load() amount { return amount{c.objects.Load(), c.bytes.Load()} }

// account keeps the objects of one cluster within its limits. It adds up the objects that
// arrive. When the sum reaches a limit, it measures the objects that are really kept: most
// of those that arrived have replaced others, and most have been packed. An arriving
// object costs four atomic additions, and a measurement 300 to 500 ns for each object that
// is kept, with 200,000 packed pods.
type account struct {
	name   string // the cluster's
	bounds atomic.Pointer[bounds]
	// pressure is that of the whole fleet.
	pressure *pressure
	// refusals counts the objects that were not kept.
	refusals atomic.Uint64
	// sum is what was measured, and what has arrived since. It is never too low by more
	// than the objects that the sources hold in their hands, one each.
	sum counter

	// mu guards the fields below, and the measured amounts of the usages.
	mu       sync.Mutex
	usages   map[*usage]struct{}
	measured amount
	at       time.Time // of the last measurement
}

// bounds are the limits of an account, and how long a resource that exceeds them waits. They
// are replaced, not modified.
type bounds struct {
	limit amount
	retry time.Duration
}

// usage is the part of an account that one source uses.
type usage struct {
	account *account
	// of is the informer that the objects go to. It is set before the source is used.
	of  *informer
	sum counter
	// measured is the amount at the last measurement. The account's mu guards it.
	measured amount
}

func newAccount(name string, l Limits, p *pressure) *account {
	a := &account{name: name, pressure: p, usages: map[*usage]struct{}{}}
	a.bound(l)
	return a
}

// bound sets the limits.
func (a *account) bound(l Limits) {
	a.bounds.Store(&bounds{limit: amount{int64(l.Objects), l.Bytes}, retry: l.Retry})
}

// open returns the part of the account for a source.
func (a *account) open() *usage {
	u := &usage{account: a}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usages[u] = struct{}{}
	return u
}

// close removes the part from the account: its objects are about to be freed.
func (u *usage) close() {
	if u == nil {
		return
	}
	a := u.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.usages[u]; !ok {
		return
	}
	delete(a.usages, u)
	had := u.sum.load()
	a.sum.add(amount{-had.objects, -had.bytes})
	a.measured = amount{max(0, a.measured.objects-u.measured.objects), max(0, a.measured.bytes-u.measured.bytes)}
}

// empty removes all objects.
func (u *usage) empty() {
	var gone []delta.Delta[*wire.Object]
	for key, o := range u.of.Snapshot().Raw() {
		gone = append(gone, delta.Delta[*wire.Object]{Type: delta.Deleted, Key: key, Object: o})
	}
	u.of.Write(gone...)
}

// kept returns about how many bytes the objects take, with those on their way to the informer.
// It reads counters.
func (u *usage) kept() int64 {
	if u.of == nil {
		return 0
	}
	s := u.of.Stats()
	return s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.LogBytes + int64(u.of.Status().QueuedBytes)
}

// charge adds an object that has arrived. It returns an error that is [ErrLimit] if the
// object must not be kept. Again means that the resource is being listed again.
func (u *usage) charge(o *wire.Object, again bool) error {
	one := amount{1, int64(o.Size() + objectOverhead)}
	mine, all := u.sum.add(one), u.account.sum.add(one)
	bounds := u.account.bounds.Load()
	limit := bounds.limit
	if all.within(limit) && mine.within(limit.scale(3, 4)) {
		return nil
	}
	err := u.account.check(u, again)
	if err == nil {
		return nil
	}
	back := amount{-one.objects, -one.bytes}
	u.sum.add(back)
	u.account.sum.add(back)
	if old, ok := u.of.Snapshot().GetRaw(o.Key()); ok && old.Version() == o.Version() && o.Version() != 0 {
		return nil // the same state is not stored again
	}
	return u.account.refuse(err)
}

// refuse returns the error for an object that must not be kept, and counts it.
func (a *account) refuse(err error) error {
	a.refusals.Add(1)
	return &reflector.Error{RetryAfter: a.bounds.Load().retry, Err: err}
}

// check measures the objects if enough have arrived since the last time, and returns an
// error if those of the account or of the usage exceed their limit.
func (a *account) check(u *usage, again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.sum.load()
	limit := a.bounds.Load().limit
	arrived := amount{sum.objects - a.measured.objects, sum.bytes - a.measured.bytes}
	if !arrived.within(limit.scale(1, measureShare)) || time.Since(a.at) > measureAge {
		a.measureLocked()
	}
	if again {
		limit = limit.scale(9, 8)
	}
	share := limit.scale(3, 4)
	switch {
	case !u.measured.within(share):
		return fmt.Errorf("%w: the resource has %s, and one resource may have %s", ErrLimit, u.measured, share)
	case !a.measured.within(limit):
		return fmt.Errorf("%w: cluster %s has %s, and may have %s", ErrLimit, a.name, a.measured, limit)
	}
	return nil
}

// measureLocked measures the objects of all usages. Objects that arrive meanwhile are
// counted twice until the next time.
func (a *account) measureLocked() {
	a.measured = amount{}
	var sum amount
	for u := range a.usages {
		before := u.sum.load()
		u.measured = u.measure()
		now := u.sum.add(amount{u.measured.objects - before.objects, u.measured.bytes - before.bytes})
		a.measured = amount{a.measured.objects + u.measured.objects, a.measured.bytes + u.measured.bytes}
		sum = amount{sum.objects + now.objects, sum.bytes + now.bytes}
	}
	before := a.sum.load()
	a.sum.add(amount{sum.objects - before.objects, sum.bytes - before.bytes})
	a.at = time.Now()
}

// measure returns the objects that the informer keeps and those on their way to it.
func (u *usage) measure() amount {
	s := u.of.Status()
	n := amount{int64(s.Objects + s.Queued), int64(s.QueuedBytes + s.Objects*objectOverhead)}
	for _, o := range u.of.Snapshot().Raw() {
		n.bytes += int64(o.Footprint())
	}
	return n
}

// String returns the amount for errors.
func (a amount) String() string {
	return fmt.Sprintf("%s objects of %s bytes", orAny(a.objects), orAny(a.bytes))
}

// orAny returns a number, or "any number of" if it is less than 0.
func orAny(n int64) string {
	if n < 0 {
		return "any number of"
	}
	return fmt.Sprint(n)
}
