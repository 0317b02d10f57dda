// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// subjectVariable makes the command measure one subject and nothing else.
	subjectVariable = "WATERSHED_BENCH_SUBJECT"
	// podsVariable, secondsVariable and runsVariable make a smaller run.
	podsVariable    = "WATERSHED_PODS"
	secondsVariable = "WATERSHED_SECONDS"
	runsVariable    = "WATERSHED_RUNS"
)

// trial is a benchmark of several subjects, each measured in a process of its own,
// so that none pays for another's garbage. R is what such a process finds.
type trial[R any] struct {
	name     string
	subjects []subject[R]
	// order is what the median of several runs is the median of.
	order func(R) float64
}

// subject is one side of a comparison.
type subject[R any] struct {
	name    string
	runs    int
	env     []string
	measure func(ctx context.Context) (R, error)
}

// isSubject reports whether this process is that of one subject. Then it has
// measured it, and written what it found.
func (t *trial[R]) isSubject(out io.Writer) (bool, error) {
	name := os.Getenv(subjectVariable)
	if name == "" {
		return false, nil
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	for _, s := range t.subjects {
		if s.name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		r, err := s.measure(ctx)
		if err != nil {
			return true, err
		}
		return true, json.NewEncoder(out).Encode(r)
	}
	return true, fmt.Errorf("no subject of %s is called %s", t.name, name)
}

// repeated says, for a heading, how often each subject was measured.
func (t *trial[R]) repeated() string {
	n := t.subjects[0].runs
	if most, err := variable(runsVariable, n); err == nil && most < n {
		n = most
	}
	if n == 1 {
		return "one run"
	}
	return fmt.Sprintf("the median of %d runs", n)
}

// run measures every subject as often as it is to be, in turns: a machine that
// others use has better and worse moments, and all have their share of both. It
// returns the median of each.
func (t *trial[R]) run(ctx context.Context, env ...string) (map[string]R, error) {
	most, err := variable(runsVariable, 0)
	if err != nil {
		return nil, err
	}
	all := map[string][]R{}
	for run, again := 0, true; again; run++ {
		again = false
		for _, s := range t.subjects {
			if run >= s.runs || most > 0 && run >= most {
				continue
			}
			again = true
			r, err := t.once(ctx, s, env...)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			all[s.name] = append(all[s.name], r)
		}
	}
	median := map[string]R{}
	for name, readings := range all {
		slices.SortFunc(readings, func(a, b R) int { return cmp.Compare(t.order(a), t.order(b)) })
		median[name] = readings[len(readings)/2]
	}
	return median, nil
}

// once measures a subject in a process of its own.
func (t *trial[R]) once(ctx context.Context, s subject[R], env ...string) (R, error) {
	var r R
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, t.name)
	cmd.Env = slices.Concat(os.Environ(), s.env, env, []string{subjectVariable + "=" + s.name})
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	_, last, _ := bytes.Cut(text, []byte("\n")) // after the heading
	return r, json.Unmarshal(last, &r)
}

// variable is a number from the environment, or what it is without.
func variable(name string, otherwise int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s is not a number above 0", name, text)
	}
	return n, nil
}

// loaded is a cluster with the first n pods of the workload, and what a subject has
// to know of it.
func loaded(ctx context.Context, n int) (*kubetest.Cluster, []string, error) {
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := c.LoadPods(ctx, kubetest.Workload{Seed: 1}, n); err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, []string{"KUBECONFIG=" + c.Kubeconfig(), podsVariable + "=" + strconv.Itoa(n)}, nil
}

// given is what loaded told this process.
func given() (cfg *rest.Config, n int, err error) {
	if cfg, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return nil, 0, err
	}
	n, err = variable(podsVariable, 0)
	return cfg, n, err
}
