// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestAway starts the replica while the cluster cannot be reached. The replica knows no
// objects then, and must not respond that there are none.
func TestAway(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{Name: clusterName})
	defineSites(t, c)
	r := newReplica(t, c)
	cfg, err := restConfig(r)
	if err != nil {
		t.Fatal(err)
	}
	reader := newReader(t, cfg, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answers := func(want func(string) bool) func() error {
		return func() error {
			for _, there := range alwaysThere {
				if answer := reader.ask(ctx, there.path, there.has); !want(answer) {
					return errors.New(there.path + ": " + answer)
				}
			}
			return nil
		}
	}
	ok := func(answer string) bool { return answer == "200" }
	if err := expect.Until(ctx, answers(ok)); err != nil {
		t.Fatal(err)
	}

	r.kill()
	c.APIServer.Kill()
	if err := r.launch(); err != nil {
		t.Fatal(err)
	}
	away, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	reader.run(away)
	all, wrong := reader.report()
	t.Logf("while the cluster is away:%s", all)
	if len(wrong) > 0 {
		t.Errorf("while the cluster is away: %s", strings.Join(wrong, ", "))
	}

	if err := c.APIServer.Start(ctx); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	if err := expect.Until(ctx, answers(ok)); err != nil {
		t.Errorf("when the cluster is back: %v", err)
	}
	t.Logf("everything is there %v after the cluster", time.Since(back).Round(100*time.Millisecond))
}
