// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verify

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// verifyTries is how many versions are tried, if the server does not have the first
	// one any more.
	verifyTries = 3
	// repairTimeout is how long a repair may take.
	repairTimeout = 5 * time.Minute
	// defaultExamples is how many divergences a result lists.
	defaultExamples = 20
)

// Options configure a verification. The zero value is the default.
type Options struct {
	// Deep compares the content of the objects too. The server then sends whole objects,
	// instead of their metadata.
	Deep bool
	// Repair lists the resource again if the copy differs from the server, and compares
	// once more.
	Repair bool
	// Examples limits the divergences that a result lists. Default 20.
	Examples int
}

// Stats counts the verifications of a member since it joined.
type Stats struct {
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

// Copy is the copy of a resource that has been listed completely once.
type Copy interface {
	// Resource returns the resource as the copy reads it.
	Resource() kube.Resource
	// Newest returns the newest whole state.
	Newest() collection.State
	// At returns the objects of the copy at a version, or the newest ones if the copy does not have
	// them at that version, and the version that they are at. It may wait for the version.
	At(ctx context.Context, version uint64) (iter.Seq2[string, *wire.Object], uint64)
	// Transformed returns an object as the copy keeps it.
	Transformed(*wire.Object) (*wire.Object, error)
	// List reads the state of the server at a version, the most recent one if it is 0, and
	// returns the version of the state. Skip is called for objects that cannot be read.
	List(
		ctx context.Context, version uint64, deep bool, each func(*wire.Object) error, skip func(key string),
	) (uint64, error)
	// Relist makes the copy list its resource again, and waits until it has the new state. With
	// back it replaces also newer states.
	Relist(ctx context.Context, back bool) error
	// SetVerified records the result of the last verification.
	SetVerified(*Verification)
}

// Verifier compares the resources of a member with their API server, one at a time, and counts the
// results. All methods are safe for concurrent use.
type Verifier struct {
	logger *slog.Logger
	// diverged is called when a copy differs from the server.
	diverged func()
	// turn is held during a verification.
	turn admission.Slots

	runs, failures, objects, bytes, undecided, repairs, unrepaired atomic.Uint64
	missing, extra, stale, ahead, wrong                            atomic.Uint64
}

// NewVerifier returns a verifier, which calls diverged when a copy differs from the server.
func NewVerifier(logger *slog.Logger, diverged func()) *Verifier {
	return &Verifier{logger: logger, diverged: diverged, turn: make(admission.Slots, 1)}
}

// Enter waits until no other verification runs. The caller calls leave after its own.
func (v *Verifier) Enter(ctx context.Context) (leave func(), err error) { return v.turn.Enter(ctx) }

// Stats returns the counts, without Diverged.
func (v *Verifier) Stats() Stats {
	return Stats{
		Runs: v.runs.Load(), Failures: v.failures.Load(), Objects: v.objects.Load(), Bytes: v.bytes.Load(),
		Missing: v.missing.Load(), Extra: v.extra.Load(), Stale: v.stale.Load(), Ahead: v.ahead.Load(),
		Wrong: v.wrong.Load(), Undecided: v.undecided.Load(), Repairs: v.repairs.Load(),
		Unrepaired: v.unrepaired.Load(),
	}
}

// Verify compares a copy, and repairs it if that is requested. The caller has entered.
func (v *Verifier) Verify(ctx context.Context, x Copy, opts Options) (*Verification, error) {
	if opts.Examples <= 0 {
		opts.Examples = defaultExamples
	}
	result, err := v.compared(ctx, x, opts)
	if err != nil {
		return nil, err
	}
	x.SetVerified(result)
	if !result.Diverges() {
		return result, nil
	}
	v.logger.Error("copy differs from the cluster", "resource", x.Resource().GroupResource().String(), "result",
		result.String(),
		"examples", fmt.Sprint(result.Examples[:min(3, len(result.Examples))]), "repair", opts.Repair)
	v.diverged()
	if !opts.Repair {
		return result, nil
	}
	v.repairs.Add(1)
	repaired := *result // readers of the status have the other one
	if err := v.relist(ctx, x, result); err != nil {
		v.unrepaired.Add(1)
		return nil, fmt.Errorf("the copy differs from the cluster (%s), and the repair failed: %w", result, err)
	}
	if repaired.Repair, err = v.compared(ctx, x, opts); err != nil {
		return nil, fmt.Errorf("the copy differed from the cluster (%s) and was listed again; comparing it after "+
			"that failed: %w", result, err)
	}
	if repaired.Diverges() {
		v.unrepaired.Add(1)
	}
	x.SetVerified(&repaired)
	return &repaired, nil
}

// relist lists the resource of a copy that differs from the server again.
func (v *Verifier) relist(ctx context.Context, x Copy, result *Verification) error {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	return x.Relist(ctx, result.Counts[DivergenceAhead] > 0) // a list alone does not replace newer states
}

// compared compares a copy once, and counts the result.
func (v *Verifier) compared(ctx context.Context, x Copy, opts Options) (*Verification, error) {
	began := time.Now()
	var result *Verification
	var err error
	for try := 1; ; try++ {
		now := x.Newest()
		result, err = compareAt(ctx, x, now, opts)
		// The server does not have the version any more. A newer one helps, if there is one.
		if reflector.ReasonOf(err) != reflector.Expired || try == verifyTries || isSame(x.Newest(), now) {
			break
		}
	}
	if err == nil {
		result.At, result.Took = time.Now(), time.Since(began)
	}
	v.count(result)
	return result, err
}

// isSame reports whether two states of a copy are the same.
func isSame(a, b collection.State) bool {
	return a.Revision() == b.Revision() && a.Version() == b.Version()
}

// compareAt compares a state of a copy with the state of the server at its version.
func compareAt(ctx context.Context, x Copy, now collection.State, opts Options) (*Verification, error) {
	c := newComparison(now, x.Resource().GroupVersionResource, opts.Deep, opts.Examples)
	c.transform = x.Transformed
	version, err := x.List(ctx, now.Version(), opts.Deep, c.add, c.skip)
	if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
		version, err = x.List(ctx, 0, opts.Deep, c.add, c.skip) // the server cannot list an exact version
	}
	if err != nil {
		return nil, err
	}
	if version == now.Version() {
		return c.end(version, now.Raw(), version), nil
	}
	copied, at := x.At(ctx, version)
	return c.end(version, copied, at), nil
}

// count adds the result of a comparison, nil if it failed.
func (v *Verifier) count(result *Verification) {
	v.runs.Add(1)
	if result == nil {
		v.failures.Add(1)
		return
	}
	v.objects.Add(uint64(result.Objects))
	v.bytes.Add(uint64(result.Bytes))
	v.undecided.Add(uint64(result.Undecided))
	for kind, counter := range map[DivergenceKind]*atomic.Uint64{
		DivergenceMissing: &v.missing, DivergenceExtra: &v.extra, DivergenceStale: &v.stale, DivergenceAhead: &v.ahead,
		DivergenceWrong: &v.wrong,
	} {
		counter.Add(uint64(result.Counts[kind]))
	}
}
