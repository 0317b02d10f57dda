// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import "context"

// Servers are three servers of the same pods.
type Servers struct {
	// Kube is the kube-apiserver of the cluster.
	Kube *Server
	// Ours is a replica of it.
	Ours *Replica
	// Bare repeats the responses of Ours.
	Bare *Bare
}

// StartServers starts a replica of the cluster's pods and a bare server. The caller
// closes them.
func StartServers(ctx context.Context, benchmark string, c *Cluster) (*Servers, error) {
	ours, err := StartReplica(ctx, c.Cluster, "pods")
	if err != nil {
		return nil, err
	}
	bare, err := StartBare(ctx, benchmark, &ours.Server)
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &Servers{Kube: APIServer(c.Cluster), Ours: ours, Bare: bare}, nil
}

// Close ends the replica and the bare server.
func (s *Servers) Close() {
	s.Bare.Close()
	s.Ours.Close()
}
