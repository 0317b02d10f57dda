// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package quota

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// ErrLimit is the cause of errors about a cluster that exceeds its limits.
var ErrLimit = errors.New("limit exceeded")

const (
	// ObjectOverhead is the memory of an object in the store in bytes, besides the object
	// itself and its key.
	ObjectOverhead = 128
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

// Account keeps the objects of one cluster within its limits. It adds up the objects that
// arrive. When the sum reaches a limit, it measures the objects that are really kept: most
// of those that arrived have replaced others, and most have been packed. An arriving
// object costs four atomic additions, and a measurement 300 to 500 ns for each object that
// is kept, with 200,000 packed pods.
type Account struct {
	name   string // the cluster's
	limits atomic.Pointer[Limits]
	// process is the memory of the whole fleet.
	process *Process
	// refusals counts the objects that were not kept.
	refusals atomic.Uint64
	// sum is what was measured, and what has arrived since. It is never too low by more
	// than the objects that the sources hold in their hands, one each.
	sum counter

	// mu guards the fields below, and the measured amounts of the usages.
	mu       sync.Mutex
	usages   map[*Usage]struct{}
	measured amount
	at       time.Time // of the last measurement
}

// Limits bound what the objects of one cluster may take. Less than 0 means no limit.
type Limits struct {
	Objects, Bytes int64
	// Retry is how long a resource that exceeds a limit waits before it is read again.
	Retry time.Duration
}

// amount returns the largest amount that may be kept.
func (l *Limits) amount() amount { return amount{l.Objects, l.Bytes} }

// informer keeps the objects of one resource of one cluster.
type informer = watershed.Informer[*wire.Object]

// Usage is the part of an account that one source uses. One goroutine at a time calls its methods,
// except [Usage.Close].
type Usage struct {
	account *Account
	// of is the informer that the objects go to.
	of  *informer
	sum counter
	// measured is the amount at the last measurement. The account's mu guards it.
	measured amount

	// listed is how many objects have arrived in the current or last list.
	listed int64
	// demand is the memory of the first list, nil if the state is not being listed or it is
	// not the first time. unmeasured is how many bytes have arrived since it was checked.
	demand     *demand
	unmeasured int64
	// short is the last lack of memory, and refused means that there was none for a list.
	short   shortage
	refused bool
}

// Keep sets the informer that the objects go to. It is called before the usage is used otherwise.
func (u *Usage) Keep(of *watershed.Informer[*wire.Object]) { u.of = of }

// NewAccount returns the account of a cluster, which takes its memory from that of the process.
func NewAccount(name string, l Limits, p *Process) *Account {
	a := &Account{name: name, process: p, usages: map[*Usage]struct{}{}}
	a.SetLimits(l)
	return a
}

// SetLimits sets the limits for objects that arrive from now on.
func (a *Account) SetLimits(l Limits) { a.limits.Store(&l) }

// Limits returns the limits that were set last.
func (a *Account) Limits() Limits { return *a.limits.Load() }

// Refusals returns how many objects were not kept.
func (a *Account) Refusals() uint64 { return a.refusals.Load() }

// Open returns the part of the account for a source.
func (a *Account) Open() *Usage {
	u := &Usage{account: a}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.usages[u] = struct{}{}
	return u
}

// Close removes the part from the account: its objects are about to be freed. It does nothing for
// nil.
func (u *Usage) Close() {
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
func (u *Usage) empty() {
	var gone []delta.Delta[*wire.Object]
	for key, o := range u.of.Snapshot().Raw() {
		gone = append(gone, delta.Delta[*wire.Object]{Type: delta.Deleted, Key: key, Object: o})
	}
	u.of.Write(gone...)
}

// kept returns about how many bytes the objects take, with those on their way to the informer.
// It reads counters.
func (u *Usage) kept() int64 {
	if u.of == nil {
		return 0
	}
	s := u.of.Stats()
	return s.ObjectBytes + s.KeyBytes + s.IndexBytes + s.LogBytes + int64(u.of.Status().QueuedBytes)
}

// Charge counts an object that is about to be kept. It returns an error if that would
// exceed a limit of the cluster or the memory of the process, and if a list does not end: the
// same objects over and over exceed no other limit. It may wait for memory. "listing" means that
// the object belongs to a list, and "synced" that a list was complete before.
func (u *Usage) Charge(ctx context.Context, o *wire.Object, listing, synced bool) error {
	if listing {
		u.listed++
	}
	if limit := u.account.limits.Load().Objects; limit >= 0 && u.listed > 2*limit+1 {
		return u.Refuse(fmt.Errorf("%w: a list has more than %d objects, and does not end", ErrLimit, 2*limit))
	}
	err := u.checkMemory(ctx, o)
	if err == nil {
		err = u.charge(o, listing && synced)
	}
	if errors.Is(err, ErrLimit) && !synced {
		if err := u.drop(ctx); err != nil {
			return err
		}
	}
	return err
}

// charge adds an object that has arrived. It returns an error that is [ErrLimit] if the
// object must not be kept. Again means that the resource is being listed again.
func (u *Usage) charge(o *wire.Object, again bool) error {
	one := amount{1, int64(o.Size() + ObjectOverhead)}
	mine, all := u.sum.add(one), u.account.sum.add(one)
	limit := u.account.limits.Load().amount()
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
	return u.Refuse(err)
}

// Refuse returns the error for an object that must not be kept, and counts it.
func (u *Usage) Refuse(err error) error {
	u.account.refusals.Add(1)
	return &reflector.Error{RetryAfter: u.account.limits.Load().Retry, Err: err}
}

// check measures the objects if enough have arrived since the last time, and returns an
// error if those of the account or of the Usage exceed their limit.
func (a *Account) check(u *Usage, again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.sum.load()
	limit := a.limits.Load().amount()
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
func (a *Account) measureLocked() {
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
func (u *Usage) measure() amount {
	s := u.of.Status()
	n := amount{int64(s.Objects + s.Queued), int64(s.QueuedBytes + s.Objects*ObjectOverhead)}
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

// drop removes the objects of a first list that is given up, so that they do not take memory
// until the next one. Nothing has read them. It waits until those that are on their way have
// arrived.
func (u *Usage) drop(ctx context.Context) error {
	const poll = 10 * time.Millisecond
	for u.of.Status().Queued > 0 {
		if err := timer.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	had := u.kept()
	u.empty()
	if had >= listOverhead {
		debug.FreeOSMemory() // the room for other resources is known at once
	}
	return nil
}
