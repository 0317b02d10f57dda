// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// KubectlPath returns the path of the kubectl that belongs to the cluster.
func (c *Cluster) KubectlPath() string { return c.bin.Kubectl.Path }

// Kubectl runs kubectl as the administrator, or in another context of
// [Cluster.Kubeconfig] if args select one, and returns its standard output. An error
// contains its standard error; the output before the error is returned too.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with a text as its standard input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	// The child must not outlive the process; see Process.spawn.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, c.bin.Kubectl.Path, args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(c.dir, "kubectl-cache"),
	)
	cmd.SysProcAttr = childAttr()
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}
