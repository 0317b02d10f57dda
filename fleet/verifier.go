// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"sync/atomic"

	"github.com/watershed-project/watershed/fleet/internal/admission"
)

// verifier admits one verification of a member at a time, and counts them.
type verifier struct {
	// turn is held during a verification.
	turn admission.Slots

	runs, failures, objects, bytes, undecided, repairs, unrepaired atomic.Uint64
	missing, extra, stale, ahead, wrong                            atomic.Uint64
}

func newVerifier() *verifier { return &verifier{turn: make(admission.Slots, 1)} }

// count adds the result of a comparison, nil if it failed.
func (v *verifier) count(result *Verification) {
	v.runs.Add(1)
	if result == nil {
		v.failures.Add(1)
		return
	}
	v.objects.Add(uint64(result.Objects))
	v.bytes.Add(uint64(result.Bytes))
	v.undecided.Add(uint64(result.Undecided))
	for kind, counter := range map[DivergenceKind]*atomic.Uint64{
		DivergenceMissing: &v.missing, DivergenceExtra: &v.extra, DivergenceStale: &v.stale, DivergenceAhead: &v.ahead, DivergenceWrong: &v.wrong,
	} {
		counter.Add(uint64(result.Counts[kind]))
	}
}
