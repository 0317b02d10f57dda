// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import "context"

// Servers are three servers of the pods of a cluster.
type Servers struct {
	*Cluster
	// Kube is the kube-apiserver of the cluster.
	Kube *Server
	// Ours is a replica of it.
	Ours *Replica
	// Bare repeats the responses of Ours, and sends the events of Kube.
	Bare *Bare
}

// StartServers starts a cluster with the given number of pods, or that of EnvPods, a
// replica of the pods and a bare server. The caller closes them.
func StartServers(ctx context.Context, pods int) (*Servers, error) {
	c, err := StartCluster(ctx, pods)
	if err != nil {
		return nil, err
	}
	ours, err := StartReplica(ctx, c.Cluster, "pods", nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	kube := APIServer(c.Cluster)
	bare, err := StartBare(ctx, &ours.Server, kube)
	if err != nil {
		ours.Close()
		c.Close()
		return nil, err
	}
	return &Servers{Cluster: c, Kube: kube, Ours: ours, Bare: bare}, nil
}

// Close ends the servers.
func (s *Servers) Close() {
	s.Bare.Close()
	s.Ours.Close()
	s.Cluster.Close()
}
