// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"strings"
	"testing"
)

func TestTrial_returnsTheMedianOfEachSubject(t *testing.T) {
	t.Setenv("TEST_ENV", "shared")
	median, err := testTrial.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(median) != 2 || median["varying"].Env != "shared" || median["once"] != (testResult{1, "own"}) {
		t.Errorf("%+v", median)
	}
	first, err := testTrial.RunOnce(t.Context(), testTrial.Subjects[0], "TEST_ENV=later")
	if err != nil || first.Env != "later" || first.Number <= median["varying"].Number {
		t.Errorf("%+v, %v", first, err)
	}
}

func TestTrial_choosesTheMiddleRun(t *testing.T) {
	var order []float64
	trial := testTrial
	trial.Order = func(r testResult) float64 {
		order = append(order, float64(r.Number))
		return float64(r.Number)
	}
	median, err := trial.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	smaller := map[float64]bool{}
	larger := map[float64]bool{}
	for _, n := range order {
		switch m := float64(median["varying"].Number); {
		case n < m && n != 1:
			smaller[n] = true
		case n > m:
			larger[n] = true
		}
	}
	if len(smaller) != 1 || len(larger) != 1 {
		t.Errorf("%d runs are smaller than the median and %d larger, want one each", len(smaller), len(larger))
	}
}

func TestTrial_runsAtMostAsOftenAsTheEnvironmentSays(t *testing.T) {
	if got := testTrial.Repetitions(); got != "the median of 3 runs" {
		t.Error(got)
	}
	t.Setenv(EnvRuns, "1")
	if got := testTrial.Repetitions(); got != "one run" {
		t.Error(got)
	}
	t.Setenv(EnvRuns, "none")
	if _, err := testTrial.Run(t.Context()); err == nil || !strings.Contains(err.Error(), EnvRuns) {
		t.Error(err)
	}
}

func TestTrial_failsWithItsSubject(t *testing.T) {
	trial := testTrial
	trial.Subjects = []Subject[testResult]{{Name: "failing", Runs: 1}}
	if _, err := trial.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "failing") {
		t.Error(err)
	}
	trial.Subjects = []Subject[testResult]{{Name: "unknown", Runs: 1}}
	if _, err := trial.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Error(err)
	}
}
