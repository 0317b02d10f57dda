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

// CreateManifest creates the objects of a manifest, YAML or JSON with any number of
// documents. An object of a namespaced kind without a namespace is created in "default".
func (c *Cluster) CreateManifest(ctx context.Context, manifest string) error {
	_, err := c.KubectlInput(ctx, manifest, "create", "-f", "-")
	return err
}

// DeleteManifest deletes the objects of a manifest. It does not wait until they are gone.
func (c *Cluster) DeleteManifest(ctx context.Context, manifest string) error {
	_, err := c.KubectlInput(ctx, manifest, "delete", "--wait=false", "-f", "-")
	return err
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
