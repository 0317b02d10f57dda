// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"slices"
)

// Tuning are the options that can change while a fleet runs. The fields are those of [Options].
type Tuning struct {
	Resources, Except, Expendable []string
	Limits                        Limits
	History                       int64
}

// tuned is a tuning and the values that are derived from it. It is replaced,
// not modified.
type tuned struct {
	selection selection
	// expendable are the patterns of resources that are dropped if memory is scarce, and
	// reduced is the selection without them.
	expendable []string
	reduced    selection
	limits     Limits // without defaults
	history    int64
}

// newTuned checks the patterns.
func newTuned(t Tuning) (*tuned, error) {
	selection, err := newSelection(t.Resources, t.Except)
	if err != nil {
		return nil, err
	}
	reduced, err := newSelection(t.Resources, slices.Concat(t.Except, t.Expendable))
	if err != nil {
		return nil, fmt.Errorf("expendable resources: %w", err)
	}
	return &tuned{selection: selection, expendable: t.Expendable, reduced: reduced, limits: t.Limits, history: t.History}, nil
}

// selection returns which resources to mirror.
func (s *settings) selection() selection {
	if s.pressure.shed.Load() {
		return s.tuned.Load().reduced
	}
	return s.tuned.Load().selection
}

// limits returns what bounds each cluster. The defaults are those of now: the memory limit of
// the process may be set after the fleet is made.
func (s *settings) limits() Limits { return s.tuned.Load().limits.withDefaults() }

// history returns how many bytes of changes are kept for feeds.
func (s *settings) history() int64 {
	return s.pressure.share(s.tuned.Load().history, PressureHistory)
}

// windows returns how many bytes of states are kept for all slow readers.
func (s *settings) windows() int64 { return s.pressure.share(windows*s.Window, PressureHistory) }
