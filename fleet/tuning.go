// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

// Tuning are the options that can change while a fleet runs. The fields are those of [Options].
type Tuning struct {
	Resources, Except []string
	Limits            Limits
	History           int64
}

// tuned is a tuning with its defaults and the values that are derived from it. It is replaced,
// not modified.
type tuned struct {
	selection selection
	limits    Limits
	history   int64
}

// newTuned fills in the defaults and checks the patterns.
func newTuned(t Tuning) (*tuned, error) {
	selection, err := newSelection(t.Resources, t.Except)
	if err != nil {
		return nil, err
	}
	return &tuned{selection: selection, limits: t.Limits.withDefaults(), history: t.History}, nil
}

// selection returns which resources to mirror.
func (s *settings) selection() selection { return s.tuned.Load().selection }

// limits returns what bounds each cluster.
func (s *settings) limits() Limits { return s.tuned.Load().limits }

// history returns how many bytes of changes are kept.
func (s *settings) history() int64 { return s.tuned.Load().history }
