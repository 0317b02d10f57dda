// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

// mirrored selects all resources, including those that are mirrored only if they are
// named.
var mirrored = []string{"*", "secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}

// startReplica serves contexts of a kubeconfig, with all resources, and returns when it has
// an address.
func startReplica(ctx context.Context, dir, kubeconfig string, contexts ...string) (*program.Process, error) {
	return startReplicaOf(ctx, mirrored, dir, kubeconfig, contexts...)
}

// startReplicaOf is startReplica with the resources of patterns, or with the default
// ones.
func startReplicaOf(
	ctx context.Context, resources []string, dir, kubeconfig string, contexts ...string,
) (*program.Process, error) {
	args := []string{"--kubeconfig", kubeconfig}
	for _, name := range contexts {
		args = append(args, "--context", name)
	}
	for _, pattern := range resources {
		args = append(args, "--resources", pattern)
	}
	return program.Start(ctx, dir, args...)
}

// logBuffer keeps the output of a process.
type logBuffer struct{ expect.Output }

func (l *logBuffer) tail(n int) string {
	all := l.String()
	return all[max(0, len(all)-n):]
}
