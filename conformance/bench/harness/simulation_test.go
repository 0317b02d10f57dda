// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

func TestSimulation_servesClustersWhosePodsChange(t *testing.T) {
	s, err := StartSimulation(t.Context(), simulated.Options{Clusters: 2, Pods: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := DialSimulation(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Clusters) != 2 || c.Clusters[0].Name >= c.Clusters[1].Name {
		t.Fatalf("%+v", c.Clusters)
	}
	for _, cluster := range c.Clusters {
		client, err := kubernetes.NewForConfig(cluster.Config())
		if err != nil {
			t.Fatal(err)
		}
		pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 5 {
			t.Errorf("%s has %d pods, %v", cluster.Name, len(pods.Items), err)
		}
	}
	if n, err := c.Churn(100, 1); err != nil || n < 50 || n > 150 {
		t.Errorf("%d changes in a second, %v", n, err)
	}
}
