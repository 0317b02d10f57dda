// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/timer"
)

var (
	// ErrNotMirrored means that a cluster does not mirror a resource.
	ErrNotMirrored = mirror.ErrNotMirrored
	// ErrNotReady means that a resource has not synced yet.
	ErrNotReady = mirror.ErrNotReady
)

type (
	// Verification is the result of comparing the copy of a resource with the API server: how many
	// objects differ, and the first of them. The copy lacks an object ("missing"), has one that
	// does not exist ("extra"), has an older ("stale") or a newer version ("ahead"), or has
	// another object or content with the same version ("wrong").
	Verification = verify.Verification
	// VerifyOptions configure a verification. The zero value is the default.
	VerifyOptions = verify.Options
)

// Verify compares the copy of a resource with the API server, at the exact version that
// the copy has. The server sends the metadata of the objects in pages, within [Budget]. One
// verification of a member runs at a time. The result is also part of [ResourceStatus]. The
// error is [ErrNotMirrored], [ErrNotReady], that of ctx, or a reason why the states could
// not be compared; the copy may still be right.
func (m *Member) Verify(ctx context.Context, r schema.GroupResource, opts VerifyOptions) (*Verification, error) {
	leave, err := m.verifier.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify %s of %s: %w", r, m.Name(), err)
	}
	defer leave()
	x, err := m.mirrors.Copy(r)
	if err == nil {
		var v *Verification
		if v, err = m.verifier.Verify(ctx, x, opts); err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("verify %s of %s: %w", r, m.Name(), err)
}

// Mirrored returns the resources that can be read or could be, had their first list not
// failed, sorted by name.
func (m *Member) Mirrored() []schema.GroupResource { return m.mirrors.Mirrored(false) }

// roundsAtOnce is how many resources are verified at once on a schedule.
const roundsAtOnce = 4

// verifyAll verifies and repairs all resources of all members in rounds, each of which
// takes a given time, until ctx ends. It returns after the last verification has ended.
func (f *Fleet) verifyAll(ctx context.Context, every time.Duration) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, roundsAtOnce)
	for {
		began, round := time.Now(), f.round()
		for i, due := range round {
			// The first one is not at the start: the clusters may have just joined.
			at := began.Add(time.Duration(float64(every) * float64(i+1) / float64(len(round)+1)))
			if timer.Sleep(ctx, time.Until(at)) != nil {
				return
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			running.Go(func() {
				defer func() { <-slots }()
				due.verify(ctx)
			})
		}
		if timer.Sleep(ctx, max(time.Until(began.Add(every)), time.Second)) != nil {
			return
		}
	}
}

// visit is one resource of one member in a round.
type visit struct {
	member   *Member
	resource schema.GroupResource
}

// round returns all resources that can be verified now, in a random order, so that the
// resources of a cluster are spread over the round.
func (f *Fleet) round() []visit {
	var all []visit
	for _, m := range f.Members() {
		for _, r := range m.mirrors.Mirrored(true) {
			all = append(all, visit{m, r})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// verify verifies the resource, unless it is not mirrored any more.
func (v visit) verify(ctx context.Context) {
	if _, err := v.member.mirrors.Copy(v.resource); err != nil {
		return
	}
	if _, err := v.member.Verify(ctx, v.resource, VerifyOptions{Repair: true}); err != nil && ctx.Err() == nil {
		v.member.logger.Warn("cannot compare the copy with the cluster", "resource", v.resource.String(), "err", err)
	}
}
