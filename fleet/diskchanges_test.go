// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// past is a fleet of one cluster with files.
type past struct {
	t       *testing.T
	cluster *simulated.Cluster
	member  *fleet.Member
	feed    *history.Feed
	// began is a time at which the state was in the files.
	began time.Time
}

func newPast(t *testing.T, pods int) *past {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: pods})
	p := &past{t: t, cluster: s.Cluster(0)}
	r := newRoster()
	r.set(p.cluster.Name(), p.cluster.Config())
	f := start(t, r, &fleet.Options{
		Logger: quiet, Disk: storing(t, t.TempDir()), History: 1 << 20, Resources: []string{"pods"},
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	m, _ := f.Member(p.cluster.Name())
	p.member = m
	p.feed, _ = m.Feed(podResource)
	expect.Soon(t, "a state in the files", func() bool {
		p.began = time.Now()
		_, err := p.feed.AtTime(t.Context(), p.began, history.Wanted{})
		return err == nil
	})
	p.written(p.cluster.Touch(0))
	return p
}

// written waits until a version is in the files.
func (p *past) written(version uint64) {
	p.t.Helper()
	_, err := p.feed.Wait(p.t.Context(), version)
	expect.NoError(p.t, err)
	expect.Soon(p.t, "the change in the files", func() bool {
		_, err := p.feed.AtVersion(p.t.Context(), version)
		return err == nil
	})
}

// suspend begins to read changes, and stops after the first.
func (p *past) suspend() {
	p.t.Helper()
	changes, err := p.feed.Changes(p.t.Context(), history.PastQuery{Since: p.began, Until: time.Now()})
	expect.NoError(p.t, err)
	next, stop := iter.Pull2(changes.All(p.t.Context()))
	p.t.Cleanup(stop)
	if _, err, ok := next(); err != nil || !ok {
		p.t.Fatal("there is no change", err)
	}
}

// occupy takes one of the places of readers of files until the test ends: the files are read while
// the reader of the changes of a member waits.
func (p *past) occupy() {
	p.t.Helper()
	all := func(schema.GroupVersionResource) bool { return true }
	next, stop := iter.Pull2(p.member.Changes(p.t.Context(), p.began, time.Now(), all))
	p.t.Cleanup(stop)
	if _, err, ok := next(); err != nil || !ok {
		p.t.Fatal("there is no change", err)
	}
}

// TestPastChanges_slowReadersDelayNoOthers reads a state while others have stopped in the
// middle of their changes.
func TestPastChanges_slowReadersDelayNoOthers(t *testing.T) {
	p := newPast(t, 5)
	for range 5 {
		p.suspend()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := p.feed.AtTime(ctx, time.Now(), history.Wanted{})
	expect.NoError(t, err)
}

// TestPastChanges_ofOneObjectHoldOneObject counts the memory of readers that have a resource
// of many objects and want the changes of one.
func TestPastChanges_ofOneObjectHoldOneObject(t *testing.T) {
	const pods, readers = 2000, 40
	p := newPast(t, pods)
	now, err := p.feed.Now()
	expect.NoError(t, err)
	bytes, name := int64(0), ""
	for key, o := range now.State.Range("", "") {
		bytes += int64(o.Size())
		name = key
	}
	var held [readers]*history.PastChanges
	before := heap()
	for i := range held {
		// Each is at another time, so that none can use the state of another.
		held[i], err = p.feed.Changes(t.Context(), history.PastQuery{
			Since: time.Now(), Until: time.Now(), Wanted: history.Wanted{Key: name},
		})
		expect.NoError(t, err)
	}
	if grown := heap() - before; grown > 5*bytes {
		t.Errorf("%d readers of one object hold %d bytes, and the resource has %d", readers, grown, bytes)
	}
	runtime.KeepAlive(&held)
}

// heap returns the bytes of the live objects of the process.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// partBytes is so small that most parts end within a batch of changes.
const partBytes = 10_000

// TestPastChanges_inPartsAreComplete reads so many changes that they are read in several
// parts, and expects each of them once, with the state before it.
func TestPastChanges_inPartsAreComplete(t *testing.T) {
	const pods, rounds = 30, 5
	p := newPast(t, pods)
	var want []uint64
	for range rounds {
		for i := range pods {
			want = append(want, p.cluster.Touch(i))
		}
		_, err := p.feed.Wait(t.Context(), want[len(want)-1]) // or else changes of an object can be merged
		expect.NoError(t, err)
	}
	p.written(want[len(want)-1])
	changes, err := p.feed.Changes(t.Context(), history.PastQuery{
		Since: p.began, Until: time.Now(), PartBytes: partBytes,
		Wanted: history.Wanted{Keys: func(key string) bool { return strings.Contains(key, "/") }},
	})
	expect.NoError(t, err)
	last, got, bytes := map[string]uint64{}, []uint64(nil), 0
	for c, err := range changes.All(t.Context()) {
		expect.NoError(t, err)
		switch before, again := last[c.Key]; {
		case c.Type != watch.Modified || c.Old == nil:
			t.Fatalf("change %d of %s: %v without the state before it", c.Version, c.Key, c.Type)
		case again && c.Old.Version() != before:
			t.Fatalf("change %d of %s: the state before it is %d, and was %d", c.Version, c.Key, c.Old.Version(),
				before)
		}
		bytes += c.Object.Size() + c.Old.Size()
		last[c.Key] = c.Version
		got = append(got, c.Version)
	}
	if bytes < 3*partBytes {
		t.Fatalf("hardly a test: %d bytes are not several parts", bytes)
	}
	expect.Equal(t, got[1:], want) // the first one is that of newPast
}

// TestPastChanges_ofOneObjectAreTheSame reads the past of one object by the index, in several
// parts, and all changes without it.
func TestPastChanges_ofOneObjectAreTheSame(t *testing.T) {
	const pods, rounds = 6, 12
	p := newPast(t, pods)
	last := uint64(0)
	for range rounds {
		for i := range pods {
			last = p.cluster.Touch(i)
		}
		_, err := p.feed.Wait(t.Context(), last)
		expect.NoError(t, err)
	}
	p.written(last)
	texts := func(changes *history.PastChanges, err error) (all []string) {
		expect.NoError(t, err)
		for c, err := range changes.All(t.Context()) {
			expect.NoError(t, err)
			text := fmt.Sprint(c.Type, c.Key, c.Time, c.Version, c.Object.Version(), c.Managers())
			if c.Old != nil {
				text += fmt.Sprint(c.Old.Version())
			}
			all = append(all, text)
		}
		return all
	}
	now, err := p.feed.Now()
	expect.NoError(t, err)
	until := time.Now()
	at := p.began.Add(until.Sub(p.began) / 2)
	for key := range now.State.Range("", "") {
		whole, err := p.feed.Changes(t.Context(), history.PastQuery{
			Since: p.began, Until: until, PartBytes: partBytes, Wanted: history.Wanted{Keys: func(k string) bool {
				return k == key
			}},
		})
		want := texts(whole, err)
		object, err := p.feed.Changes(t.Context(), history.PastQuery{
			Since: p.began, Until: until, PartBytes: partBytes, Wanted: history.Wanted{Key: key},
		})
		expect.Equal(t, texts(object, err), want)
		if len(want) < rounds {
			t.Errorf("%s: %d changes, and there were %d", key, len(want), rounds)
		}
		at = at.Add(1) // a complete state is kept, and would be used for the next object
		one, err := p.feed.AtTime(t.Context(), at, history.Wanted{Key: key})
		expect.NoError(t, err)
		if one.Len() != 1 {
			t.Errorf("%s: %d objects were read", key, one.Len())
		}
		all, err := p.feed.AtTime(t.Context(), at, history.Wanted{})
		expect.NoError(t, err)
		a, ok := one.Get(key)
		b, _ := all.Get(key)
		if !ok || a.Version() != b.Version() || one.Version != all.Version || !one.Time.Equal(all.Time) {
			t.Errorf("%s: %v at version %d, and %v at version %d", key, a, one.Version, b, all.Version)
		}
	}
}

// TestAtVersion_tooOldDoesNotWait reads versions that the files do not have while others read.
func TestAtVersion_tooOldDoesNotWait(t *testing.T) {
	p := newPast(t, 5)
	tooOld := (*history.TooOldError)(nil)
	if _, err := p.feed.AtVersion(t.Context(), 1); !errors.As(err, &tooOld) {
		t.Fatalf("version 1: %v", err)
	}
	p.occupy()
	p.occupy()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := p.feed.AtVersion(ctx, 2); !errors.As(err, &tooOld) {
		t.Errorf("version 2: %v", err)
	}
	if _, err := p.feed.AtTime(ctx, tooOld.Oldest.Add(-time.Second), history.Wanted{}); !errors.As(err, &tooOld) {
		t.Errorf("a time before the files: %v", err)
	}
	if p.feed.Reaches(1) || !p.feed.Reaches(p.cluster.Version()) {
		t.Error("the files reach back to version 1, or not to the newest")
	}
}
