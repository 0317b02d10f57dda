// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Controllers configure the programs that [Cluster.StartNodes] starts.
type Controllers struct {
	// Nodes is the number of simulated nodes, at least 1.
	Nodes int
	// Manager and Scheduler are the kubeconfigs of kube-controller-manager and of
	// kube-scheduler. Default: that of the cluster.
	Manager, Scheduler string
	// ManagerArgs and SchedulerArgs are passed to them after all others.
	ManagerArgs, SchedulerArgs []string
}

// StartNodes completes a cluster that has no nodes with controllers, a scheduler and nodes
// for pods to run on. It returns when the nodes are ready. The nodes use the API server, and
// the controllers the servers of their kubeconfigs. Nil options mean one node.
func (c *Cluster) StartNodes(ctx context.Context, opts *Controllers) error {
	o := Controllers{Nodes: 1}
	if opts != nil {
		o = *opts
	}
	switch {
	case c.Kwok != nil:
		return fmt.Errorf("start nodes: cluster %s has nodes already", c.Name())
	case o.Nodes < 1:
		return fmt.Errorf("start nodes: %d nodes, want at least 1", o.Nodes)
	}
	if o.Manager == "" {
		o.Manager = c.Kubeconfig()
	}
	if o.Scheduler == "" {
		o.Scheduler = c.Kubeconfig()
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	if err := c.newControllers(client, &o); err != nil {
		return err
	}
	for i := range o.Nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %d: %w", i, err)
		}
	}
	started := make(chan error)
	processes := []*Process{c.ControllerManager, c.Scheduler, c.Kwok}
	for _, p := range processes {
		go func() { started <- p.Start(ctx) }()
	}
	for range processes {
		if e := <-started; e != nil && err == nil {
			err = e
		}
	}
	return err
}

func (c *Cluster) newControllers(client kubernetes.Interface, o *Controllers) error {
	common := []string{"--leader-elect=false", "--secure-port=0"}

	c.ControllerManager = c.process(c.bin.ControllerManager, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}, slices.Concat([]string{
		"--kubeconfig=" + o.Manager,
		"--service-account-private-key-file=" + c.keys.serviceAccount,
		"--root-ca-file=" + c.keys.caFile,
	}, common, o.ManagerArgs)...)

	// The scheduler serves nothing and writes nothing until there is a pod to place.
	c.Scheduler = c.process(c.bin.Scheduler, nil,
		slices.Concat([]string{"--kubeconfig=" + o.Scheduler}, common, o.SchedulerArgs)...)

	stages, err := filepath.Glob(filepath.Join(c.bin.Stages, "*.yaml"))
	if err != nil {
		return err
	}
	args := []string{"--kubeconfig=" + c.Kubeconfig(), "--manage-all-nodes=true"}
	for _, s := range stages {
		args = append(args, "--config="+s)
	}
	kubelet, err := c.kubeletArgs()
	if err != nil {
		return err
	}
	c.Kwok = c.process(c.bin.Kwok, func(ctx context.Context) error {
		if err := c.kubeletReady(ctx); err != nil {
			return err
		}
		return nodesReady(ctx, client)
	}, append(args, kubelet...)...)
	return nil
}

func nodesReady(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		ready := false
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				ready = cond.Status == corev1.ConditionTrue
			}
		}
		if !ready {
			return fmt.Errorf("node %s is not Ready", n.Name)
		}
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has taint %s", n.Name, n.Spec.Taints[0].Key)
		}
	}
	return nil
}

func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:      name,
				corev1.LabelOSStable:      "linux",
				corev1.LabelArchStable:    "amd64",
				corev1.LabelTopologyZone:  fmt.Sprintf("zone-%d", i%3),
				"node.kubernetes.io/kind": "simulated",
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
