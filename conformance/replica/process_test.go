// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/expect"
)

// replicaProcess is a running watershed serve.
type replicaProcess struct {
	dir     string
	address string
	ca      []byte
	// token is that of the owner.
	token string
	cmd   *exec.Cmd
	ended chan struct{}
	log   logBuffer
}

// mirrored selects all resources, including those that are mirrored only if they are
// named.
var mirrored = []string{"*", "secrets", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}

// build builds the watershed binary in binaryFolder, once.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaryFolder, "watershed")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/watershed")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build watershed: %w: %s", err, out)
	}
	return path, nil
})

// startReplica serves contexts of a kubeconfig, with all resources, and returns when it has
// an address.
func startReplica(ctx context.Context, dir, kubeconfig string, contexts ...string) (*replicaProcess, error) {
	return startReplicaOf(ctx, mirrored, dir, kubeconfig, contexts...)
}

// startReplicaOf is startReplica with the resources of patterns, or with the default
// ones.
func startReplicaOf(
	ctx context.Context, resources []string, dir, kubeconfig string, contexts ...string,
) (*replicaProcess, error) {
	args := []string{"--kubeconfig", kubeconfig}
	for _, name := range contexts {
		args = append(args, "--context", name)
	}
	for _, pattern := range resources {
		args = append(args, "--resources", pattern)
	}
	return startServe(ctx, dir, args...)
}

// startServe runs watershed serve with flags, and returns when it has an address.
func startServe(ctx context.Context, dir string, flags ...string) (*replicaProcess, error) {
	binary, err := build()
	if err != nil {
		return nil, err
	}
	p := &replicaProcess{dir: filepath.Join(dir, "state"), ended: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--state-dir", p.dir,
	}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = childAttr()
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start watershed: %w", err)
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := expect.Until(soon, p.ready); err != nil {
		p.stop()
		return nil, fmt.Errorf("watershed serve: %w: %s", err, p.tail())
	}
	return p, nil
}

// ready requests a kubeconfig, as a user would. It has the address and the authority.
func (p *replicaProcess) ready() error {
	select {
	case <-p.ended:
		return errors.New("it ended: " + p.tail())
	default:
	}
	out, err := p.kubeconfig()
	if err != nil {
		return err
	}
	k, err := clientcmd.Load(out)
	if err != nil {
		return fmt.Errorf("watershed kubeconfig: %w", err)
	}
	for _, user := range k.AuthInfos {
		p.token = user.Token
	}
	for _, c := range k.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return err
		}
		p.address, p.ca = u.Host, c.CertificateAuthorityData
		return nil
	}
	return errors.New("watershed kubeconfig: no clusters yet")
}

// kubeconfig returns the output of watershed kubeconfig.
func (p *replicaProcess) kubeconfig() ([]byte, error) {
	out, err := exec.Command(p.cmd.Path, "kubeconfig", "--prefix", "", "--state-dir", p.dir).Output()
	if err != nil {
		return nil, fmt.Errorf("watershed kubeconfig: %w", err)
	}
	return out, nil
}

// writeKubeconfig writes the kubeconfig to a file.
func (p *replicaProcess) writeKubeconfig(path string) error {
	out, err := p.kubeconfig()
	if err != nil {
		return err
	}
	return os.WriteFile(path, out, 0o600)
}

func (p *replicaProcess) config() *rest.Config {
	return &rest.Config{
		Host:            "https://" + p.address,
		BearerToken:     p.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca},
		QPS:             -1,
	}
}

// stop ends the process and waits for it.
func (p *replicaProcess) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *replicaProcess) tail() string { return p.log.tail(4 << 10) }

// logBuffer keeps the output of a process.
type logBuffer struct{ expect.Output }

func (l *logBuffer) tail(n int) string {
	all := l.String()
	return all[max(0, len(all)-n):]
}
