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

// StartCluster starts a cluster with the first n pods of the workload. It returns
// the environment variables from which [ClusterFromEnv] of another process finds it.
// The caller closes the cluster.
func StartCluster(ctx context.Context, n int) (*kubetest.Cluster, []string, error) {
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := c.LoadPods(ctx, kubetest.Workload{Seed: 1}, n); err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, []string{"KUBECONFIG=" + c.Kubeconfig(), EnvPods + "=" + strconv.Itoa(n)}, nil
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
