// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_withoutCluster(t *testing.T) {
	programtest.Retries(t, "# an object has apiVersion and kind, however it is read\n",
		func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
			return run(ctx, out, cluster, options{})
		})
}
