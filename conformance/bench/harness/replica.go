// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"cmp"
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
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// binaryVariable is the path of a watershed binary. Default: the benchmark builds
	// that of this checkout.
	binaryVariable = "WATERSHED_BINARY"
	// profileVariable is a folder for CPU profiles of the replica, one for each
	// measurement. Default: no profiles.
	profileVariable = "WATERSHED_PROFILE"
	// replicaReady is how long the replica may take until the resource can be listed.
	replicaReady = 2 * time.Minute
	// replicaPoll is how often that is tried.
	replicaPoll = 200 * time.Millisecond
	// replicaStop is how long the replica may take to end.
	replicaStop = 20 * time.Second
)

// IsExperiment reports whether the settings make the results unfit for publication:
// profiling costs processor time, and another binary is not that of this checkout.
func IsExperiment() bool {
	return os.Getenv(binaryVariable) != "" || os.Getenv(profileVariable) != ""
}

// Replica is a running watershed serve.
type Replica struct {
	Server
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	// profiles is the URL of Go's profiles, "" without profiling.
	profiles string
}

// ReplicaOptions are options of [StartReplica].
type ReplicaOptions struct {
	// Binary is the path of the program. Default: that of WATERSHED_BINARY, or else the
	// program of this checkout is built.
	Binary string
	// Flags are added to those of serve.
	Flags []string
	// Kubeconfig is a file all of whose contexts are mirrored; one of them has the name of the cluster.
	// Default: the cluster alone.
	Kubeconfig string
}

// StartReplica starts a replica of one resource of the core group, and returns when
// the replica can list it. The caller closes the replica. nil options are the defaults.
func StartReplica(ctx context.Context, c *kubetest.Cluster, resource string, opts *ReplicaOptions) (*Replica, error) {
	if opts == nil {
		opts = &ReplicaOptions{}
	}
	dir, err := os.MkdirTemp("", "watershed-bench-")
	if err != nil {
		return nil, err
	}
	r := &Replica{Server: Server{Process: Process{Name: "watershed serve"}}, dir: dir, ended: make(chan struct{})}
	if err := r.start(ctx, c, resource, opts); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := r.waitReady(ctx, c, resource); err != nil {
		text, _ := os.ReadFile(r.log())
		r.Close()
		return nil, fmt.Errorf("watershed serve: %w: %s", err, text)
	}
	return r, nil
}

func (r *Replica) log() string { return filepath.Join(r.dir, "log") }

func (r *Replica) start(ctx context.Context, c *kubetest.Cluster, resource string, opts *ReplicaOptions) error {
	binary, err := cmp.Or(opts.Binary, os.Getenv(binaryVariable)), error(nil)
	if binary == "" {
		binary, err = BuildReplica(ctx, r.dir)
	}
	if err != nil {
		return err
	}
	log, err := os.Create(r.log())
	if err != nil {
		return err
	}
	defer log.Close()
	source := []string{"--kubeconfig", opts.Kubeconfig}
	if opts.Kubeconfig == "" {
		source = []string{"--kubeconfig", c.Kubeconfig(), "--context", c.Name()}
	}
	r.cmd = exec.Command(binary, "serve",
		"--listen", "127.0.0.1:0", "--state-dir", r.dir, "--resources", resource,
		// All clients of a benchmark have one address.
		"--max-connections-per-address", "20000")
	r.cmd.Args = slices.Concat(r.cmd.Args, source, opts.Flags)
	if os.Getenv(profileVariable) != "" {
		r.cmd.Args = append(r.cmd.Args, "--pprof", "127.0.0.1:0")
	}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	// The kernel ends the replica together with the thread that started it, in case the
	// benchmark is killed.
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
	r.PID = r.cmd.Process.Pid
	return nil
}

// BuildReplica builds the program of this checkout in a folder, and returns its path.
func BuildReplica(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/watershed-project/watershed").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of watershed: %w", err)
	}
	path := filepath.Join(dir, "watershed")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/watershed")
	cmd.Dir = strings.TrimSpace(string(root))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build watershed: %w: %s", err, text)
	}
	return path, nil
}

// waitReady waits until the resource can be listed.
func (r *Replica) waitReady(ctx context.Context, c *kubetest.Cluster, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, replicaReady)
	defer cancel()
	for {
		err := r.configure(c.Name())
		if err == nil {
			err = r.list(ctx, resource)
		}
		if err == nil {
			return nil
		}
		select {
		case <-r.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(replicaPoll):
		}
	}
}

var profilesURL = regexp.MustCompile(`msg=profiles url=(\S+)`)

// configure reads the replica's kubeconfig, and finds the URL of its profiles in the
// log.
func (r *Replica) configure(cluster string) error {
	text, err := exec.Command(r.cmd.Path, "kubeconfig", "--prefix", "", "--state-dir", r.dir).Output()
	if err != nil {
		return fmt.Errorf("watershed kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return err
	}
	if r.Config, err = clientcmd.NewNonInteractiveClientConfig(*config, cluster, nil, nil).ClientConfig(); err != nil {
		return err
	}
	r.Config.QPS = -1
	if os.Getenv(profileVariable) != "" {
		log, err := os.ReadFile(r.log())
		if err != nil {
			return err
		}
		url := profilesURL.FindSubmatch(log)
		if url == nil {
			return errors.New("the log has no URL of profiles")
		}
		r.profiles = string(url[1])
	}
	return nil
}

func (r *Replica) list(ctx context.Context, resource string) error {
	client, err := r.Client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	body, err := r.Get(ctx, client, "/api/v1/"+resource+"?limit=1", Format{Accept: JSON})
	if err != nil {
		return err
	}
	return body.Close()
}

// Close ends the replica and waits until it has ended.
func (r *Replica) Close() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(replicaStop):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	_ = os.RemoveAll(r.dir)
}

// Profile takes a profile during d, if profiling is on. The returned
// function waits until it has been written.
func (r *Replica) Profile(name string, d time.Duration) (wait func() error) {
	if r.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		done <- r.fetchProfile(filepath.Join(os.Getenv(profileVariable), name+".pprof"), d)
	}()
	return func() error { return <-done }
}

func (r *Replica) fetchProfile(path string, d time.Duration) error {
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
