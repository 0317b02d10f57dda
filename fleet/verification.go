// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNotMirrored means that a cluster does not mirror a resource.
	ErrNotMirrored = errors.New("resource is not mirrored")
	// ErrNotReady means that a resource has not synced yet.
	ErrNotReady = history.ErrNotReady
)

const (
	// verifyTries is how many versions are tried, if the server does not have the first
	// one any more.
	verifyTries = 3
	// verifyWait is how long a comparison waits for the copy, if the server has returned
	// another version than the requested one.
	verifyWait = 5 * time.Second
	// repairTimeout is how long a repair may take.
	repairTimeout = 5 * time.Minute
	// relistPoll is how often a repair checks whether the mirror has listed the resource.
	relistPoll = 20 * time.Millisecond
	// defaultExamples is how many divergences a result lists.
	defaultExamples = 20
)

// VerifyOptions configure a verification. The zero value is the default.
type VerifyOptions struct {
	// Deep compares the content of the objects too. The server then sends whole objects,
	// instead of their metadata.
	Deep bool
	// Repair lists the resource again if the copy differs from the server, and compares
	// once more.
	Repair bool
	// Examples limits the divergences that a result lists. Default 20.
	Examples int
}

// VerifyStats counts the verifications of a member since it joined.
type VerifyStats struct {
	// Runs counts comparisons, and Failures those of them without a result. Comparisons
	// after a repair count too.
	Runs, Failures uint64
	// Objects counts the objects that were compared, and Bytes their approximate size in the
	// form in which the server sent them.
	Objects, Bytes uint64
	// Missing, Extra, Stale, Ahead and Wrong count divergences, see [DivergenceKind].
	Missing, Extra, Stale, Ahead, Wrong uint64
	// Undecided counts objects that could not be compared.
	Undecided uint64
	// Repairs counts the resources that were listed again, and Unrepaired those of them that
	// differed from the server after that too.
	Repairs, Unrepaired uint64
	// Diverged is how many resources differ from the server now, as far as it is known.
	Diverged int
}

// VerifyStats returns the counts of the member's verifications. It costs some 100 ns for
// each resource.
func (m *Member) VerifyStats() VerifyStats {
	v := m.verifier
	s := VerifyStats{
		Runs: v.runs.Load(), Failures: v.failures.Load(), Objects: v.objects.Load(), Bytes: v.bytes.Load(), Undecided: v.undecided.Load(),
		Missing: v.missing.Load(), Extra: v.extra.Load(), Stale: v.stale.Load(), Ahead: v.ahead.Load(), Wrong: v.wrong.Load(),
		Repairs: v.repairs.Load(), Unrepaired: v.unrepaired.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.mirrors {
		if x.verified.Load().Diverges() {
			s.Diverged++
		}
	}
	return s
}

// Verify compares the copy of a resource with the API server, at the exact version that
// the copy has. The server sends the metadata of the objects in pages, within [Budget]. One
// verification of a member runs at a time. The result is also part of [ResourceStatus]. The
// error is [ErrNotMirrored], [ErrNotReady], that of ctx, or a reason why the states could
// not be compared; the copy may still be right.
func (m *Member) Verify(ctx context.Context, r schema.GroupResource, opts VerifyOptions) (*Verification, error) {
	leave, err := m.verifier.turn.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify %s of %s: %w", r, m.name, err)
	}
	defer leave()
	if opts.Examples <= 0 {
		opts.Examples = defaultExamples
	}
	x, err := m.verifiable(r)
	if err == nil {
		var v *Verification
		if v, err = m.verify(ctx, x, opts); err == nil {
			return v, nil
		}
	}
	return nil, fmt.Errorf("verify %s of %s: %w", r, m.name, err)
}

// verifiable returns the mirror of a resource that has synced.
func (m *Member) verifiable(r schema.GroupResource) (*mirror, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.mirrors[r]
	switch {
	case x == nil || x.collection == nil:
		return nil, ErrNotMirrored
	case x.whole.Load() == nil:
		if err := x.informer.Connection().Err; err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
		}
		return nil, ErrNotReady
	}
	return x, nil
}

// verify compares a mirror and repairs it if that is requested.
func (m *Member) verify(ctx context.Context, x *mirror, opts VerifyOptions) (*Verification, error) {
	result, err := m.compared(ctx, x, opts)
	if err != nil {
		return nil, err
	}
	x.verified.Store(result)
	if !result.Diverges() {
		return result, nil
	}
	m.logger.Error("copy differs from the cluster", "resource", x.resource.GroupResource().String(), "result", result.String(),
		"examples", fmt.Sprint(result.Examples[:min(3, len(result.Examples))]), "repair", opts.Repair)
	m.disturb()
	if !opts.Repair {
		return result, nil
	}
	m.verifier.repairs.Add(1)
	repaired := *result // readers of the status have the other one
	if err := m.relist(ctx, x, result); err != nil {
		m.verifier.unrepaired.Add(1)
		return nil, fmt.Errorf("the copy differs from the cluster (%s), and the repair failed: %w", result, err)
	}
	if repaired.Repair, err = m.compared(ctx, x, opts); err != nil {
		return nil, fmt.Errorf("the copy differed from the cluster (%s) and was listed again; comparing it after that failed: %w", result, err)
	}
	if repaired.Diverges() {
		m.verifier.unrepaired.Add(1)
	}
	x.verified.Store(&repaired)
	return &repaired, nil
}

// compared compares a mirror once, and counts the result.
func (m *Member) compared(ctx context.Context, x *mirror, opts VerifyOptions) (*Verification, error) {
	began := time.Now()
	var result *Verification
	var err error
	for try := 1; ; try++ {
		now := *x.whole.Load()
		result, err = m.compareAt(ctx, x, now, opts)
		// The server does not have the version any more. A newer one helps, if there is one.
		if reflector.ReasonOf(err) != reflector.Expired || try == verifyTries || x.whole.Load().Revision() == now.Revision() && x.whole.Load().Version() == now.Version() {
			break
		}
	}
	if err == nil {
		result.At, result.Took = time.Now(), time.Since(began)
	}
	m.verifier.count(result)
	return result, err
}

// compareAt compares a state of a mirror with the state of the server at its version.
func (m *Member) compareAt(ctx context.Context, x *mirror, now state, opts VerifyOptions) (*Verification, error) {
	c := newComparison(now, x.resource.GroupVersionResource, opts.Deep, opts.Examples)
	c.transform = x.informer.Transformed
	list := &listing{server: m.server, query: x.source.selected(), each: c.add, skip: c.skip}
	list.query.MetadataOnly = !opts.Deep
	version, err := list.read(ctx, now.Version())
	if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
		version, err = list.read(ctx, 0) // the server cannot list an exact version
	}
	if err != nil {
		return nil, err
	}
	if version == now.Version() {
		return c.end(version, now.Raw(), version), nil
	}
	copied, at := m.copyAt(ctx, x, version)
	return c.end(version, copied, at), nil
}

// copyAt returns the state of the copy at a version, or the newest one if that is not
// available, and its version. It waits a while for a version that the copy has not
// reached.
func (m *Member) copyAt(ctx context.Context, x *mirror, version uint64) (iter.Seq2[string, *wire.Object], uint64) {
	if feed := x.feed.Feed(); feed != nil {
		waiting, cancel := context.WithTimeout(ctx, verifyWait)
		defer cancel()
		_, _ = feed.Wait(waiting, version) // without it, the newest state is used
		if past, err := feed.At(version); err == nil {
			return past.Range("", ""), version
		}
	}
	now := *x.whole.Load()
	return now.Raw(), now.Version()
}

// relist makes a mirror list its resource again, and waits until it has the new state.
func (m *Member) relist(ctx context.Context, x *mirror, result *Verification) error {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	before := x.relists.Load()
	if result.Counts[DivergenceAhead] > 0 {
		x.informer.RelistBack() // a list alone does not replace newer states
	} else {
		x.informer.Relist()
	}
	for x.relists.Load() == before {
		if now, err := m.verifiable(x.resource.GroupResource()); err != nil || now != x {
			return errors.New("the mirror was replaced")
		}
		if err := timer.Sleep(ctx, relistPoll); err != nil {
			return fmt.Errorf("wait for the list: %w", err)
		}
	}
	return nil
}

// Mirrored returns the resources that can be read or could be, had their first list not
// failed, sorted by name.
func (m *Member) Mirrored() []schema.GroupResource {
	return m.selected(func(*mirror) bool { return true })
}

// Verifiable returns the resources that [Member.Verify] can compare now, sorted by name.
func (m *Member) Verifiable() []schema.GroupResource {
	return m.selected(func(x *mirror) bool { return x.whole.Load() != nil })
}

// selected returns the resources that are selected and for which has returns true, sorted by
// name.
func (m *Member) selected(has func(*mirror) bool) []schema.GroupResource {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []schema.GroupResource
	for at, x := range m.mirrors {
		if x.collection != nil && has(x) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, first)
	return all
}
