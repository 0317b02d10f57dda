// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outcomes counts requests by how access control has decided.
type Outcomes struct {
	// Accepted counts requests that were authenticated, or allowed. Refused counts those that
	// got a 401 or a 403. Limited counts those that got a 429, and Failed those that the
	// cluster could not decide about.
	Accepted, Refused, Limited, Failed uint64
}

// outcomes counts decisions. A decision costs an atomic addition.
type outcomes struct{ accepted, refused, limited, failed atomic.Uint64 }

// count counts a decision by its error.
func (o *outcomes) count(err error) {
	switch {
	case err == nil:
		o.accepted.Add(1)
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		o.refused.Add(1)
	case apierrors.IsTooManyRequests(err):
		o.limited.Add(1)
	default:
		o.failed.Add(1)
	}
}

func (o *outcomes) load() Outcomes {
	return Outcomes{
		Accepted: o.accepted.Load(), Refused: o.refused.Load(), Limited: o.limited.Load(), Failed: o.failed.Load(),
	}
}
