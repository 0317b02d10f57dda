// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ratio returns theirs divided by ours: how many times smaller ours is.
func Ratio(ours, theirs time.Duration) string {
	return fmt.Sprintf("%.2f", float64(theirs)/float64(max(ours, 1)))
}

// Form is how a number is written: a verb of package fmt, or one of the constants.
type Form string

const (
	// Grouped numbers have no decimals, and commas.
	Grouped Form = "grouped"
	// MB is a number of bytes in whole megabytes.
	MB Form = "MB"
	// Digits3 numbers have three significant digits, and no decimals if they are 1000 or larger.
	Digits3 Form = "digits"
)

func (f Form) text(x float64) string {
	switch f {
	case Grouped:
		return Whole(x)
	case MB:
		return Megabytes(x)
	case Digits3:
		return Significant(x)
	}
	return fmt.Sprintf(string(f), x)
}

// Whole returns a number without decimals and with commas.
func Whole(x float64) string { return Thousands(strconv.FormatFloat(x, 'f', 0, 64)) }

// Thousands inserts commas into a whole number and returns other text unchanged.
func Thousands(digits string) string {
	if strings.ContainsAny(digits, ",.e+-") {
		return digits
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// InMilliseconds returns a duration in milliseconds.
func InMilliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Megabytes returns a number of bytes as whole megabytes.
func Megabytes(bytes float64) string { return strconv.FormatFloat(bytes/1e6, 'f', 0, 64) }

// Milliseconds returns a duration in milliseconds, with three significant digits.
func Milliseconds(d time.Duration) string { return Significant(InMilliseconds(d)) }

// Significant returns a number with three significant digits, or as a whole number
// if it is 1000 or larger.
func Significant(x float64) string {
	if x >= 1000 {
		return Whole(x)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// Latencies are durations in any order.
type Latencies []time.Duration

// Quantiles sorts the latencies and returns the median, the 99th percentile and the
// longest. They are 0 if there are no latencies.
func (l Latencies) Quantiles() (p50, p99, longest time.Duration) {
	n := len(l)
	if n == 0 {
		return 0, 0, 0
	}
	slices.Sort(l)
	return l[n/2], l[n*99/100], l[n-1]
}

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

// Cost runs f, which does n operations, and returns the processor time of one.
func Cost(n int, f func()) time.Duration {
	start := CPUTime()
	f()
	return (CPUTime() - start) / time.Duration(n)
}

// Alternate measures two costs in turns and returns the mean of each. Taking turns
// makes each side pay for its own garbage, and exposes both to the same
// disturbances of the machine.
func Alternate(rounds int, ours, theirs func() time.Duration) (o, t time.Duration) {
	runtime.GC()
	for range rounds {
		o += ours()
		t += theirs()
	}
	return o / time.Duration(rounds), t / time.Duration(rounds)
}
