// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// binaryVariable is a watershed that is built already. Default: that of this
	// checkout is built.
	binaryVariable = "WATERSHED_BINARY"
	// profileVariable is a folder for profiles of the replica's processor time, one for
	// each thing that is measured. Default: none are made.
	profileVariable = "WATERSHED_PROFILE"
)

// isTrial reports whether what is found is not for readers: taking profiles costs
// something, and another binary is not that of this checkout.
func isTrial() bool { return os.Getenv(binaryVariable) != "" || os.Getenv(profileVariable) != "" }

// replica is a running watershed serve.
type replica struct {
	server
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	// profiles is where Go's profiles are, "" if nobody wants them.
	profiles string
}

// startReplica mirrors one resource of the core group and returns when it has been
// listed.
func startReplica(ctx context.Context, c *kubetest.Cluster, resource string) (*replica, error) {
	dir, err := os.MkdirTemp("", "watershed-bench-")
	if err != nil {
		return nil, err
	}
	r := &replica{server: server{name: "watershed serve"}, dir: dir, ended: make(chan struct{})}
	if err := r.start(ctx, c, resource); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := r.ready(ctx, c, resource); err != nil {
		text, _ := os.ReadFile(r.log())
		r.close()
		return nil, fmt.Errorf("watershed serve: %w: %s", err, text)
	}
	return r, nil
}

func (r *replica) log() string { return filepath.Join(r.dir, "log") }

func (r *replica) start(ctx context.Context, c *kubetest.Cluster, resource string) error {
	binary, err := r.build(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(r.log())
	if err != nil {
		return err
	}
	defer log.Close()
	r.cmd = exec.Command(binary, "serve", "--kubeconfig", c.Kubeconfig(), "--context", c.Name(),
		"--listen", "127.0.0.1:0", "--state-dir", r.dir, "--resources", resource)
	if os.Getenv(profileVariable) != "" {
		r.cmd.Args = append(r.cmd.Args, "--pprof", "127.0.0.1:0")
	}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	// The kernel ends it with the thread that started it, should the benchmark be killed.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err == nil {
			_ = r.cmd.Wait()
		}
		close(r.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start watershed: %w", err)
	}
	r.pid = r.cmd.Process.Pid
	return nil
}

// build makes the binary, if there is none.
func (r *replica) build(ctx context.Context) (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/watershed-project/watershed").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of watershed: %w", err)
	}
	path := filepath.Join(r.dir, "watershed")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/watershed")
	cmd.Dir = strings.TrimSpace(string(root))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build watershed: %w: %s", err, text)
	}
	return path, nil
}

var profilesURL = regexp.MustCompile(`msg=profiles url=(\S+)`)

// ready waits until the resource can be listed.
func (r *replica) ready(ctx context.Context, c *kubetest.Cluster, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := r.find(c.Name())
		if err == nil {
			err = r.listed(ctx, resource)
		}
		if err == nil {
			return nil
		}
		select {
		case <-r.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// find asks how clients are to reach the replica.
func (r *replica) find(cluster string) error {
	text, err := exec.Command(r.cmd.Path, "kubeconfig", "--prefix", "", "--state-dir", r.dir).Output()
	if err != nil {
		return fmt.Errorf("watershed kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return err
	}
	if r.cfg, err = clientcmd.NewNonInteractiveClientConfig(*config, cluster, nil, nil).ClientConfig(); err != nil {
		return err
	}
	r.cfg.QPS = -1
	if os.Getenv(profileVariable) != "" {
		said, err := os.ReadFile(r.log())
		if err != nil {
			return err
		}
		url := profilesURL.FindSubmatch(said)
		if url == nil {
			return errors.New("it does not say where profiles are")
		}
		r.profiles = string(url[1])
	}
	return nil
}

func (r *replica) listed(ctx context.Context, resource string) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	body, err := r.ask(ctx, client, "/api/v1/"+resource+"?limit=1", form{accept: asJSON})
	if err != nil {
		return err
	}
	return body.Close()
}

// close ends the replica and waits for it.
func (r *replica) close() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	_ = os.RemoveAll(r.dir)
}

// profile takes a profile for so long, if somebody wants them. The function that it
// returns waits for it.
func (r *replica) profile(name string, d time.Duration) (wait func() error) {
	if r.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		done <- r.fetchProfile(filepath.Join(os.Getenv(profileVariable), name+".pprof"), d)
	}()
	return func() error { return <-done }
}

func (r *replica) fetchProfile(path string, d time.Duration) error {
	resp, err := http.Get(fmt.Sprintf("%sprofile?seconds=%d", r.profiles, max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: %s", path, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
