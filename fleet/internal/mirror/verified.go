// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

const (
	// verifyWait is how long a comparison waits for the copy, if the server has returned
	// another version than the requested one.
	verifyWait = 5 * time.Second
	// relistPoll is how often a repair checks whether the mirror has listed the resource.
	relistPoll = 20 * time.Millisecond
)

// verified is a mirror as its verification sees it. It has a whole state.
type verified struct {
	mirror *Mirror
	set    *Set
}

var _ verify.Copy = verified{}

// Resource returns the resource as the mirror reads it.
func (v verified) Resource() kube.Resource { return v.mirror.Resource }

// Transformed returns an object as the mirror keeps it.
func (v verified) Transformed(o *wire.Object) (*wire.Object, error) {
	return v.mirror.Informer.Engine().Transform(o)
}

// Newest returns the newest whole state. There is one.
func (v verified) Newest() collection.State { return *v.mirror.whole.Load() }

// SetVerified records the result of the last verification.
func (v verified) SetVerified(result *verify.Verification) { v.mirror.verified.Store(result) }

// List reads the state of the server at a version.
func (v verified) List(
	ctx context.Context, version uint64, deep bool, each func(*wire.Object) error, skip func(key string),
) (uint64, error) {
	list := &upstream.Listing{Server: v.mirror.server, Query: v.mirror.Source.Query(), Each: each, Skip: skip}
	list.Query.MetadataOnly = !deep
	return list.Read(ctx, version)
}

// At returns the state of the copy at a version, or the newest one if that is not
// available, and its version. It waits a while for a version that the copy has not
// reached.
func (v verified) At(ctx context.Context, version uint64) (iter.Seq2[string, *wire.Object], uint64) {
	if feed := v.mirror.Feed.Feed(); feed != nil {
		waiting, cancel := context.WithTimeout(ctx, verifyWait)
		defer cancel()
		_, _ = feed.Wait(waiting, version) // without it, the newest state is used
		if past, err := feed.At(version); err == nil {
			return past.Range("", ""), version
		}
	}
	now := *v.mirror.whole.Load()
	return now.Raw(), now.Version()
}

// Relist makes the mirror list its resource again, and waits until it has the new state. With "back"
// it replaces also newer states.
func (v verified) Relist(ctx context.Context, back bool) error {
	before := v.mirror.relists.Load()
	if back {
		v.mirror.Informer.Engine().Current().Reflector().RelistBack()
	} else {
		v.mirror.Informer.Relist()
	}
	for v.mirror.relists.Load() == before {
		if now, err := v.set.verifiable(v.mirror.Resource.GroupResource()); err != nil || now != v.mirror {
			return errors.New("the mirror was replaced")
		}
		if err := timer.Sleep(ctx, relistPoll); err != nil {
			return fmt.Errorf("wait for the list: %w", err)
		}
	}
	return nil
}
