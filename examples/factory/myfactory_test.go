// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestRun_byHandWithoutCluster(t *testing.T) {
	programtest.Retries(t, "# by hand: a map from type to informer\n",
		func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
			return run(ctx, out, cluster, options{namespace: "default", byHand: true})
		})
}

func TestInformerOf_sharesByType(t *testing.T) {
	cluster, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := newMyFactory(cluster, "default")
	first, err := informerOf[*corev1.Pod](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := informerOf[*corev1.Pod](f, nil); err != nil || second != first {
		t.Errorf("the second caller has another informer, %v", err)
	}
	if _, err := informerOf[*corev1.ConfigMap](f, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := f.String(), "*v1.ConfigMap (0), *v1.Pod (0)"; got != want {
		t.Errorf("informers %s, want %s", got, want)
	}
}
