// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/verify"
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

// round returns functions that verify and repair all resources that can be verified now.
func (f *Fleet) round() []func(context.Context) {
	var all []func(context.Context)
	for _, m := range f.Members() {
		for _, r := range m.mirrors.Mirrored(true) {
			all = append(all, func(ctx context.Context) { m.verifyMirrored(ctx, r) })
		}
	}
	return all
}

// verifyMirrored verifies and repairs a resource, unless it is not mirrored any more.
func (m *Member) verifyMirrored(ctx context.Context, r schema.GroupResource) {
	if _, err := m.mirrors.Copy(r); err != nil {
		return
	}
	if _, err := m.Verify(ctx, r, VerifyOptions{Repair: true}); err != nil && ctx.Err() == nil {
		m.logger.Warn("cannot compare the copy with the cluster", "resource", r.String(), "err", err)
	}
}
