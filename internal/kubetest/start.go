// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// RequiredVariable is the name of the environment variable that, if set to "required",
// makes tests fail that would be skipped because the binaries are not built.
const RequiredVariable = "WATERSHED_KUBE"

// startTimeout is long, because machines that run tests are busy.
const startTimeout = 2 * time.Minute

// Start starts a cluster for a test and ends it with the test. The test is skipped in
// short mode and if the binaries are not built; see [RequiredVariable]. nil options are
// the zero value.
func Start(tb testing.TB, opts *Options) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a real Kubernetes: not in short mode")
	}
	o := opts.withDefaults()
	if o.Dir == "" {
		// The folder is created before the cleanup below is registered, so it is removed
		// after the processes that write into it are gone.
		o.Dir = tb.TempDir()
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	c, err := New(ctx, &o)
	if errors.Is(err, ErrNotBuilt) && os.Getenv(RequiredVariable) != "required" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("start cluster %s: %v", o.Name, err)
	}
	tb.Cleanup(func() {
		c.Close()
		if tb.Failed() {
			for _, p := range c.processes() {
				tb.Logf("cluster %s: the end of %s:\n%s", o.Name, p.Log(), p.Tail(tailBytes))
			}
		}
	})
	return c
}
