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
	if err := c.LoadPods(ctx, kubetest.Workload{Seed: 1}, pods); err != nil {
		c.Close()
		return nil, err
	}
	return &Cluster{c, pods}, nil
}

// Env returns the environment variables from which [ClusterFromEnv] of another process
// finds the cluster.
func (c *Cluster) Env() []string {
	return []string{"KUBECONFIG=" + c.Kubeconfig(), EnvPods + "=" + strconv.Itoa(c.Pods)}
}

// ClusterFromEnv returns how to reach the cluster that [StartCluster] has started, and
// the number of its pods.
func ClusterFromEnv() (cfg *rest.Config, pods int, err error) {
	if cfg, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return nil, 0, err
	}
	pods, err = EnvInt(EnvPods, 0)
	return cfg, pods, err
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
