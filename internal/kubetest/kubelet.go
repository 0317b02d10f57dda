// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Kubelet configures the kubelet endpoints of the nodes, which kwok serves on loopback. The
// pods have no processes, so the endpoints are those of this machine:
//
//   - All containers have one log, see [Cluster.AppendLog]. An attached client receives the
//     lines that are appended while it is attached.
//   - Exec runs a command on this machine, as the user of the test. kwok reports every
//     command that fails as an internal error, without its exit code, and never closes the
//     standard input of a command.
//   - Port-forward leads to one port of this machine.
//   - Ephemeral containers are Running as soon as they are added.
//
// kwok needs an inotify instance for each followed log and each attached client, of which
// Linux allows a user 128 by default.
type Kubelet struct {
	// Port is the port on loopback that kube-apiserver connects to. A test that has to
	// replace a part of kwok listens there, and passes the other requests on to
	// [Cluster.KwokURL]. Default: the port of kwok.
	Port int
	// ForwardTo is the port on loopback that all ports of all pods are forwarded to.
	// Default: port-forward fails.
	ForwardTo int
	// Except is a label selector of pods that the test runs itself: kwok writes no status for them and
	// does not remove them. Default: none.
	Except string
}

// KwokURL returns the address at which kwok serves the kubelet endpoints. Its certificate is
// that of the API server.
func (c *Cluster) KwokURL() string { return "https://" + c.ports[portKwok].addr() }

// AppendLog appends a line to the log that all containers share.
func (c *Cluster) AppendLog(text string) error {
	f, err := os.OpenFile(c.containerLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("log of the containers: %w", err)
	}
	// The format is that of the container runtime interface.
	_, err = fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), text)
	if err := cmp.Or(err, f.Close()); err != nil {
		return fmt.Errorf("log of the containers: %w", err)
	}
	return nil
}

// The log has a folder of its own, because kwok watches the whole folder.
func (c *Cluster) containerLog() string { return filepath.Join(c.dir, "containers", "containers.log") }

// kubeletArgs returns the arguments with which kwok serves the kubelet endpoints, and writes
// the files that they refer to.
func (c *Cluster) kubeletArgs() ([]string, error) {
	k := c.opts.Kubelet
	if k == nil {
		return nil, nil
	}
	log := c.containerLog()
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(kubeletConfig, log, filepath.Dir(log))
	if k.ForwardTo != 0 {
		config += fmt.Sprintf(forwardConfig, k.ForwardTo)
	}
	path := filepath.Join(c.dir, "kubelet.yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	args := []string{
		"--config=" + path,
		"--node-ip=127.0.0.1",
		"--node-port=" + strconv.Itoa(cmp.Or(k.Port, c.ports[portKwok].number)),
		"--server-address=" + c.ports[portKwok].addr(),
		"--tls-cert-file=" + c.keys.servingCert,
		"--tls-private-key-file=" + c.keys.servingKey,
	}
	if k.Except != "" {
		args = append(args, "--disregard-status-with-label-selector="+k.Except)
	}
	return args, nil
}

// kubeletReady returns an error until kwok accepts connections.
func (c *Cluster) kubeletReady(ctx context.Context) error {
	if c.opts.Kubelet == nil {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.ports[portKwok].addr())
	if err != nil {
		return err
	}
	return conn.Close()
}

// kubeletConfig is the configuration of kwok for the log of the containers and the working
// folder of commands. The stage completes kwok's own ones, which ignore ephemeral containers.
const kubeletConfig = `kind: ClusterLogs
apiVersion: kwok.x-k8s.io/v1alpha1
metadata:
  name: logs
spec:
  logs:
  - logsFile: %[1]q
---
kind: ClusterAttach
apiVersion: kwok.x-k8s.io/v1alpha1
metadata:
  name: attach
spec:
  attaches:
  - logsFile: %[1]q
---
kind: ClusterExec
apiVersion: kwok.x-k8s.io/v1alpha1
metadata:
  name: exec
spec:
  execs:
  - local:
      workDir: %[2]q
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata:
  name: pod-ephemeral-containers
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.status.phase'
      operator: 'In'
      values:
      - 'Running'
    - key: '(((.spec.ephemeralContainers // []) | length) > ((.status.ephemeralContainerStatuses // []) | length)) | tostring'
      operator: 'In'
      values:
      - 'true'
  next:
    statusTemplate: |
      {{ $now := Now }}
      ephemeralContainerStatuses:
      {{ range .spec.ephemeralContainers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state:
          running:
            startedAt: {{ $now | Quote }}
      {{ end }}
`

// forwardConfig is the configuration of kwok for port-forward.
const forwardConfig = `---
kind: ClusterPortForward
apiVersion: kwok.x-k8s.io/v1alpha1
metadata:
  name: forward
spec:
  forwards:
  - target:
      address: 127.0.0.1
      port: %d
`
