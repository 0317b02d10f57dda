// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"fmt"
	"os"
	"strconv"
)

// Settings that make a run smaller than the one that is published.
const (
	// EnvPods is the number of pods.
	EnvPods = "WATERSHED_PODS"
	// EnvSeconds is how long each measurement takes, in seconds.
	EnvSeconds = "WATERSHED_SECONDS"
	// EnvRuns is the largest number of runs of each subject.
	EnvRuns = "WATERSHED_RUNS"
	// EnvRate is the number of changes per second.
	EnvRate = "WATERSHED_RATE"
)

// EnvInt returns the positive integer in an environment variable, or fallback if
// the variable is not set.
func EnvInt(name string, fallback int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s is not a number above 0", name, text)
	}
	return n, nil
}
