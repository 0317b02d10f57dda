// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package podprocess runs the container of a pod as a process of this machine, for tests of the
// chart on machines without a container engine. It needs Linux, and root or the right to create
// mount namespaces.
//
// # Guarantees
//
//   - The process has the root directory of its image, which it cannot write, apart from the
//     volumes of the kind emptyDir.
//   - It runs as the user and group of the pod's security context, with the arguments and the
//     variables of the container and those that the kubelet adds, and with no others.
//   - ConfigMaps and Secrets are mounted as the kubelet does: each file is a link into a directory
//     that is replaced as a whole.
//   - It has a token of its service account, unless the pod wants none.
//
// Limits of memory and CPU, capabilities, the seccomp profile and the network of a pod are not
// those of the pod.
package podprocess

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// script enters a mount namespace of its own, in which the root directory is read-only and the
// empty directories are mounted. A mount of the script ends with the process.
const script = `set -e
root=$1 state=$2 user=$3 mounts=$4; shift 4
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
for path in $mounts; do mount --bind "$state$path" "$root$path"; done
exec chroot --userspec="$user" "$root" "$@"`

// Options describe the container.
type Options struct {
	// Namespace and Spec are those of the pod. It has one container.
	Namespace string
	Spec      corev1.PodSpec
	// Config is the administrator's access to the API server, which the pod uses with a token of
	// its own.
	Config *rest.Config
	// Root is a directory with the files of the image. New adds to it.
	Root string
	// State is an existing, empty directory for the volumes of the kind emptyDir.
	State string
	// Entrypoint is the command of the image.
	Entrypoint []string
	// Args are added to the arguments of the container.
	Args []string
	// Log receives the output. Its methods are called by one goroutine.
	Log io.Writer
}

// Process is the container. New prepares it, Start starts it, and Stop or Kill ends it.
type Process struct {
	opts     Options
	client   kubernetes.Interface
	revision int // of the mounted volumes
	cmd      *exec.Cmd
	ended    chan struct{}
	err      error // how it ended; read only after ended is closed
}

// Available returns an error if this machine cannot run pods as processes.
func Available(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "unshare", "-m", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("a mount namespace cannot be created, root is needed: %w: %s", err, out)
	}
	return nil
}

// New writes the volumes of the pod into its root directory.
func New(ctx context.Context, opts *Options) (*Process, error) {
	if n := len(opts.Spec.Containers); n != 1 {
		return nil, fmt.Errorf("pod process: %d containers, want 1", n)
	}
	client, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, err
	}
	p := &Process{opts: *opts, client: client, ended: make(chan struct{})}
	if err := os.Chmod(opts.Root, 0o755); err != nil {
		return nil, err
	}
	if err := p.writeToken(ctx); err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", opts.Spec.ServiceAccountName, err)
	}
	for _, path := range p.emptyDirs() {
		if err := p.makeEmptyDir(path); err != nil {
			return nil, err
		}
	}
	return p, p.Refresh(ctx)
}

// container returns the only container.
func (p *Process) container() *corev1.Container { return &p.opts.Spec.Containers[0] }

// makeEmptyDir creates a directory that the group of the pod may write, and the place to mount it.
func (p *Process) makeEmptyDir(path string) error {
	dir := filepath.Join(p.opts.State, path)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(p.Path(path), 0o755)); err != nil {
		return err
	}
	if s := p.opts.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		if err := os.Chown(dir, -1, int(*s.FSGroup)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o2770)
}

// Path returns where this machine has a path of the root directory.
func (p *Process) Path(path string) string { return filepath.Join(p.opts.Root, path) }

// StatePath returns where this machine has a path of a volume of the kind emptyDir.
func (p *Process) StatePath(path string) string { return filepath.Join(p.opts.State, path) }

// Start starts the process. It is killed when the context ends.
func (p *Process) Start(ctx context.Context) error {
	api, err := url.Parse(p.opts.Config.Host)
	if err != nil {
		return err
	}
	container := p.container()
	args := []string{
		"-m", "sh", "-c", script, "sh", p.opts.Root, p.opts.State, p.user(), strings.Join(p.emptyDirs(), " "),
	}
	args = append(args, p.opts.Entrypoint...)
	args = append(args, container.Args...)
	p.cmd = exec.CommandContext(ctx, "unshare", append(args, p.opts.Args...)...)
	p.cmd.Env = []string{
		"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port(),
		"PATH=" + os.Getenv("PATH"),
	}
	for _, e := range container.Env {
		p.cmd.Env = append(p.cmd.Env, e.Name+"="+e.Value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.opts.Log, p.opts.Log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("pod process: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return nil
}

// user returns the user and group of the security context.
func (p *Process) user() string {
	user, group := int64(0), int64(0)
	if s := p.opts.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		user = *s.RunAsUser
		if s.RunAsGroup != nil {
			group = *s.RunAsGroup
		}
	}
	return fmt.Sprintf("%d:%d", user, group)
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns how the process ended. Call it after Ended is closed.
func (p *Process) Err() error { return p.err }

// Stop asks the process to end, and returns how it ended. It waits for the time that the kubelet gives
// the pod, and then kills the process and returns an error.
func (p *Process) Stop() error {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if seconds := p.opts.Spec.TerminationGracePeriodSeconds; seconds != nil {
		grace = *seconds
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(time.Duration(grace) * time.Second):
		p.Kill()
		return fmt.Errorf("pod process: it did not end within %d s", grace)
	}
}

// Kill ends the process at once, if it still runs, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Ready sends the request of the readiness probe to a port of this machine, and returns an error
// unless it succeeds. As the kubelet, it does not verify the certificate.
func (p *Process) Ready(ctx context.Context, port string) error {
	probe := p.container().ReadinessProbe.HTTPGet
	address := strings.ToLower(string(probe.Scheme)) + "://" + net.JoinHostPort("127.0.0.1", port) + probe.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readiness probe: %s", response.Status)
	}
	return nil
}
