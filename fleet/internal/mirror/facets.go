// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"context"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
)

const (
	// definitionWait limits how long a mirror of a custom resource waits for the definitions of its
	// cluster. Without its definition, the facets that the definition names are missing.
	definitionWait = 10 * time.Second
	// definitionPoll is how often it looks.
	definitionPoll = 20 * time.Millisecond
)

// plan returns the function that returns the plan for the facets of a resource, nil if objects have
// none.
func (s *Set) plan(r kube.Resource) func(context.Context) *facets.Plan {
	if s.settings.Facets == nil {
		return nil
	}
	return func(ctx context.Context) *facets.Plan {
		var definition []byte
		if isCustom(r) {
			definition = s.definition(ctx, r)
		}
		return s.settings.Facets.Plan(r.GroupResource(), r.GroupVersionKind(), definition)
	}
}

// isCustom reports whether a resource can have a definition.
func isCustom(r kube.Resource) bool {
	_, builtin := kube.KindOf(r.GroupVersionResource)
	at := r.GroupResource()
	return !builtin && at != selection.Definitions && at != selection.APIServices
}

// definition waits until the definitions of the cluster have been read or loaded, and returns that of
// a resource, nil if there is none.
func (s *Set) definition(ctx context.Context, r kube.Resource) []byte {
	for deadline := time.Now().Add(definitionWait); time.Now().Before(deadline); {
		x := s.Mirror(selection.Definitions)
		if x == nil {
			return nil
		}
		if state := x.whole.Load(); state != nil {
			if o, ok := state.GetRaw(r.GroupResource().String()); ok {
				return o.Bytes()
			}
			return nil
		}
		if timer.Sleep(ctx, definitionPoll) != nil {
			return nil
		}
	}
	return nil
}
