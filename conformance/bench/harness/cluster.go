// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"os"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// Cluster is a cluster with the first pods of the workload.
type Cluster struct {
	*kubetest.Cluster
	// Pods is how many pods it has.
	Pods int
	// Version is the version that its API server reports.
	Version string
}

// StartCluster starts a cluster with the given number of pods, or that of EnvPods. The
// caller closes it.
func StartCluster(ctx context.Context, pods int) (*Cluster, error) {
	pods, err := EnvInt(EnvPods, pods)
	if err != nil {
		return nil, err
	}
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return nil, err
	}
	version, err := ServerVersion(c.Config())
	if err == nil {
		err = c.LoadPods(ctx, kubetest.Workload{Seed: 1}, pods)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Cluster{c, pods, version}, nil
}

// env returns the environment variables from which [OfCluster] finds the cluster in
// another process.
func (c *Cluster) env() []string {
	return []string{"KUBECONFIG=" + c.Kubeconfig(), EnvPods + "=" + strconv.Itoa(c.Pods)}
}

// OfCluster returns the measurement of a subject of [Trial.RunWithPods]. It calls measure
// with the cluster and the number of its pods.
func OfCluster[R any](measure func(ctx context.Context, cfg *rest.Config, pods int) (R, error)) func(context.Context) (R, error) {
	return func(ctx context.Context) (R, error) {
		var none R
		cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return none, err
		}
		pods, err := EnvInt(EnvPods, 0)
		if err != nil {
			return none, err
		}
		return measure(ctx, cfg, pods)
	}
}

// ServerVersion returns the version that an API server reports.
func ServerVersion(cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}
