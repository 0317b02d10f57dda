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

// subjectLimit is how long one measurement of a subject may take, by default.
const subjectLimit = 15 * time.Minute

// Trial is a benchmark of several subjects. Each runs in a process of its own, so
// that none pays for another's garbage. R is the result of such a process, and is
// passed as JSON.
type Trial[R any] struct {
	// Name is the name of the benchmark, and of its [Trial.Role].
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
	// Bar is the subject in tables and figures. Default: its name.
	Bar Bar
	// Runs is how often the subject is measured.
	Runs int
	// Env has additional environment variables of its process.
	Env     []string
	Measure func(ctx context.Context) (R, error)
}

// Role measures the subject whose name is the task, and answers with its result.
func (t *Trial[R]) Role(task []byte, _ io.Reader, out io.Writer) error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	var name string
	if err := json.Unmarshal(task, &name); err != nil {
		return err
	}
	for _, s := range t.Subjects {
		if s.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(t.Limit, subjectLimit))
		defer cancel()
		r, err := s.Measure(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(r)
	}
	return fmt.Errorf("no subject of %s is called %s", t.Name, name)
}

// RunOnce measures a subject once, in a process of its own.
func (t *Trial[R]) RunOnce(ctx context.Context, s Subject[R], env ...string) (r R, err error) {
	c, err := StartChild(ctx, t.Name, s.Name, slices.Concat(s.Env, env)...)
	if err != nil {
		return r, err
	}
	return r, c.Result(&r)
}

// Repetitions returns how often the first subject is measured, as text for a heading.
func (t *Trial[R]) Repetitions() string {
	n := t.Subjects[0].Runs
	if most, err := EnvInt(EnvRuns, n); err == nil {
		n = min(n, most)
	}
	return Repetitions(n)
}

// Repetitions returns the number of runs of which the median is taken, as text for a heading.
func Repetitions(runs int) string {
	if runs == 1 {
		return "one run"
	}
	return fmt.Sprintf("the median of %d runs", runs)
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
		median[name] = Median(results, t.Order)
	}
	return median, nil
}

// Median sorts the results by a number, and returns the middle one.
func Median[R any](results []R, order func(R) float64) R {
	slices.SortFunc(results, func(a, b R) int { return cmp.Compare(order(a), order(b)) })
	return results[len(results)/2]
}

// Rows returns the median result of each subject, as rows of a table. Their keys are the names of the subjects.
func (t *Trial[R]) Rows(median map[string]R) []Row[R] {
	rows := make([]Row[R], len(t.Subjects))
	for i, s := range t.Subjects {
		rows[i] = Row[R]{Bar: s.Bar, Key: Key(s.Name), Reading: median[s.Name]}
		rows[i].Name = cmp.Or(s.Bar.Name, s.Name)
	}
	return rows
}

// RunWithPods runs the trial with a new cluster that has the given number of pods, or that
// of EnvPods, and writes the report of the median results.
func (t *Trial[R]) RunWithPods(out io.Writer, pods int, report func(c *Cluster, median map[string]R) *Report) error {
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
	r := report(c, median)
	r.Name = t.Name
	r.Server = c.Version
	return r.Write(out)
}
