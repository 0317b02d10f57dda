// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_withoutCluster(t *testing.T) {
	programtest.Retries(t, "", func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, options{workers: 2, qps: 10})
	})
}

func TestFormat(t *testing.T) {
	for want, phases := range map[string]map[corev1.PodPhase]int{
		"no pods":              nil,
		"2 Running":            {corev1.PodRunning: 2},
		"1 Pending, 3 Running": {corev1.PodRunning: 3, corev1.PodPending: 1},
	} {
		if got := format(phases); got != want {
			t.Errorf("%v: %q, want %q", phases, got, want)
		}
	}
}
