// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"
)

const (
	// subjectVariable makes the command measure one subject and nothing else.
	subjectVariable = "WATERSHED_BENCH_SUBJECT"
	// subjectLimit is how long one measurement of a subject may take, by default.
	subjectLimit = 15 * time.Minute
)

// Trial is a benchmark of several subjects. Each runs in a process of its own, so
// that none pays for another's garbage. R is the result of such a process, and is
// passed as JSON.
type Trial[R any] struct {
	// Name is the name of the benchmark.
	Name     string
	Subjects []Subject[R]
	// Warm measures the first subject once before all others, so that the server is warm.
	Warm bool
	// Limit is how long one measurement of a subject may take. Default 15 minutes.
	Limit time.Duration
	// Order returns the number by which the median run is chosen.
	Order func(R) float64
}

// Subject is one side of a comparison.
type Subject[R any] struct {
	Name string
	// Runs is how often the subject is measured.
	Runs int
	// Env has additional environment variables of its process.
	Env     []string
	Measure func(ctx context.Context) (R, error)
}

// RunAsSubject measures the subject that this process was started for, prints the
// result and reports true, or reports false if it was not started by [Trial.Run].
func (t *Trial[R]) RunAsSubject(out io.Writer) (bool, error) {
	name := os.Getenv(subjectVariable)
	if name == "" {
		return false, nil
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	for _, s := range t.Subjects {
		if s.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(t.Limit, subjectLimit))
		defer cancel()
		r, err := s.Measure(ctx)
		if err != nil {
			return true, err
		}
		return true, json.NewEncoder(out).Encode(r)
	}
	return true, fmt.Errorf("no subject of %s is called %s", t.Name, name)
}

// Repetitions returns how often the first subject is measured, as text for a heading.
func (t *Trial[R]) Repetitions() string {
	n := t.Subjects[0].Runs
	if most, err := EnvInt(EnvRuns, n); err == nil && most < n {
		n = most
	}
	if n == 1 {
		return "one run"
	}
	return fmt.Sprintf("the median of %d runs", n)
}

// Run measures every subject as often as its Runs, and returns the median result of
// each. The subjects take turns, so that a disturbance of the machine does not hit
// one of them only.
func (t *Trial[R]) Run(ctx context.Context, env ...string) (map[string]R, error) {
	most, err := EnvInt(EnvRuns, 0)
	if err != nil {
		return nil, err
	}
	all := map[string][]R{}
	for run, again := 0, true; again; run++ {
		again = false
		for _, s := range t.Subjects {
			if run >= s.Runs || most > 0 && run >= most {
				continue
			}
			again = true
			r, err := t.RunOnce(ctx, s, env...)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			all[s.Name] = append(all[s.Name], r)
		}
	}
	median := map[string]R{}
	for name, results := range all {
		slices.SortFunc(results, func(a, b R) int { return cmp.Compare(t.Order(a), t.Order(b)) })
		median[name] = results[len(results)/2]
	}
	return median, nil
}

// RunWithPods runs the trial with a new cluster that has the given number of pods, or that
// of EnvPods, and calls report with the median result of each subject. In a process that
// was started for a subject, it measures that subject instead.
func (t *Trial[R]) RunWithPods(out io.Writer, pods int, report func(out io.Writer, c *Cluster, median map[string]R) error) error {
	if done, err := t.RunAsSubject(out); done {
		return err
	}
	ctx := context.Background()
	c, err := StartCluster(ctx, pods)
	if err != nil {
		return err
	}
	defer c.Close()
	if t.Warm {
		if _, err := t.RunOnce(ctx, t.Subjects[0], c.env()...); err != nil {
			return err
		}
	}
	median, err := t.Run(ctx, c.env()...)
	if err != nil {
		return err
	}
	return report(out, c, median)
}

// RunOnce measures a subject once, in a process of its own.
func (t *Trial[R]) RunOnce(ctx context.Context, s Subject[R], env ...string) (R, error) {
	var r R
	err := RunSelf(ctx, t.Name, slices.Concat(s.Env, env, []string{subjectVariable + "=" + s.Name}), &r)
	return r, err
}
