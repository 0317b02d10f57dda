// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package program

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

// patience is the timeout for a start, which takes a second on an idle machine.
const patience = time.Minute

// Process is a running watershed serve.
type Process struct {
	// StateDir is its --state-dir.
	StateDir string
	// Address is where it serves, and CA its authority.
	Address string
	CA      []byte
	// Token is that of the owner.
	Token string
	Cmd   *exec.Cmd
	// Ended is closed when the process has ended.
	Ended chan struct{}
	// Log is what it has written.
	Log expect.Output
}

// folder returns a folder for binaries, which is created once.
var folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "watershed-binary-") })

// Remove removes what Build has built.
func Remove() {
	if path, err := folder(); err == nil {
		_ = os.RemoveAll(path)
	}
}

// Binary returns the path of the program of this checkout, which it builds once.
var Binary = sync.OnceValues(func() (string, error) { return Build("watershed") })

// Build builds the program under a name, with further flags of go build.
func Build(name string, flags ...string) (string, error) {
	into, err := folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(into, name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "./cmd/watershed")...)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build watershed: %w: %s", err, out)
	}
	return path, nil
}

// Start runs watershed serve with flags, and returns when it has an address. Its state is in a
// folder of dir. The caller stops it.
func Start(ctx context.Context, dir string, flags ...string) (*Process, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	return StartBinary(ctx, binary, nil, dir, flags...)
}

// StartBinary is Start with another binary, and with environment variables in addition to those of
// the test.
func StartBinary(ctx context.Context, binary string, env []string, dir string, flags ...string) (*Process, error) {
	p := &Process{StateDir: filepath.Join(dir, "state"), Ended: make(chan struct{})}
	p.Cmd = exec.Command(binary, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--state-dir", p.StateDir,
	}, flags...)...)
	p.Cmd.Env = append(os.Environ(), env...)
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Log, &p.Log
	p.Cmd.SysProcAttr = ChildAttr()
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.Cmd.Start()
		started <- err
		if err == nil {
			_ = p.Cmd.Wait()
		}
		close(p.Ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start watershed: %w", err)
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := expect.Until(soon, p.ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("watershed serve: %w: %s", err, p.Tail())
	}
	return p, nil
}

// ready requests a kubeconfig, as a user would. It has the address and the authority.
func (p *Process) ready() error {
	select {
	case <-p.Ended:
		return errors.New("it ended: " + p.Tail())
	default:
	}
	out, err := p.Kubeconfig()
	if err != nil {
		return err
	}
	k, err := clientcmd.Load(out)
	if err != nil {
		return fmt.Errorf("watershed kubeconfig: %w", err)
	}
	for _, user := range k.AuthInfos {
		p.Token = user.Token
	}
	for _, c := range k.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return err
		}
		p.Address, p.CA = u.Host, c.CertificateAuthorityData
		return nil
	}
	return errors.New("watershed kubeconfig: no clusters yet")
}

// Kubeconfig returns the output of watershed kubeconfig.
func (p *Process) Kubeconfig() ([]byte, error) {
	out, err := exec.Command(p.Cmd.Path, "kubeconfig", "--prefix", "", "--state-dir", p.StateDir).Output()
	if err != nil {
		return nil, fmt.Errorf("watershed kubeconfig: %w", err)
	}
	return out, nil
}

// WriteKubeconfig writes the kubeconfig to a file.
func (p *Process) WriteKubeconfig(path string) error {
	out, err := p.Kubeconfig()
	if err != nil {
		return err
	}
	return os.WriteFile(path, out, 0o600)
}

// Config returns the access of the owner.
func (p *Process) Config() *rest.Config {
	return &rest.Config{
		Host:            "https://" + p.Address,
		BearerToken:     p.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.CA},
		QPS:             -1,
	}
}

// Kill kills the process and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// Stop ends the process in order and waits for it.
func (p *Process) Stop() {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
	case <-time.After(time.Minute):
		p.Kill()
	}
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	all := p.Log.String()
	return all[max(0, len(all)-4<<10):]
}
