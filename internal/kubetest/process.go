// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// errPortTaken means that a start failed because another process listens on the port.
var errPortTaken = errors.New("port is taken")

// Process is one component of a cluster: a command line that can be started,
// killed and started again with the same ports and data. Its output is appended
// to one file. Methods may be called from any goroutine.
type Process struct {
	name string
	path string
	args []string
	env  []string // in addition to the caller's
	log  string

	// ready returns nil when the component serves. It is nil if there is nothing to
	// check.
	ready func(context.Context) error
	// died receives an error for an unexpected end.
	died chan<- error

	mu  sync.Mutex // guards run, and makes Start, Stop and Kill take turns
	run *run       // the last start; nil before the first
}

// run is one life of a process.
type run struct {
	process  *os.Process
	offset   int64         // where in the log this life begins
	expected atomic.Bool   // set before a deliberate signal
	done     chan struct{} // closed when it has ended and was reaped
	err      error         // how it ended; read only after done
}

// Name returns the command's name, such as kube-apiserver.
func (p *Process) Name() string { return p.name }

// Log returns the path of the file with the component's output.
func (p *Process) Log() string { return p.log }

// PID returns the process id of the running process, or 0.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return 0
	}
	return p.run.process.Pid
}

// Start starts the process and waits until it serves. ctx bounds only that wait; after an
// error nothing keeps running. It is an error if the process already runs.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	r, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run = r
	if err := p.waitReady(ctx, r); err != nil {
		r.signal(syscall.SIGKILL)
		<-r.done
		return err
	}
	return nil
}

// Kill ends the process without warning, as a power cut would, and returns when it is
// gone. If the process does not run, it does nothing.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		p.run.signal(syscall.SIGKILL)
		<-p.run.done
	}
}

// Stop requests the process to end, as an upgrade would, and returns when it is gone. If
// ctx ends first, it kills the process and returns the error of ctx.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return nil
	}
	p.run.signal(syscall.SIGTERM)
	select {
	case <-p.run.done:
		return nil
	case <-ctx.Done():
		p.run.signal(syscall.SIGKILL)
		<-p.run.done
		return fmt.Errorf("stop %s: %w", p.name, ctx.Err())
	}
}

// Tail returns the end of the component's output, at most limit bytes, from the start of
// a line.
func (p *Process) Tail(limit int64) string {
	return tail(p.log, 0, limit)
}

func (p *Process) runningLocked() bool {
	if p.run == nil {
		return false
	}
	select {
	case <-p.run.done:
		return false
	default:
		return true
	}
}

// spawn starts the command in its own goroutine, which holds its OS thread until the
// child is gone. Linux sends the parent death signal when the thread that forked ends,
// not the process: from an ordinary goroutine the child would be killed at some later
// time, when the runtime drops an idle thread.
func (p *Process) spawn() (*run, error) {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := out.Stat()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttr()

	r := &run{offset: info.Size(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer out.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		r.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		r.err = cmd.Wait()
		if !r.expected.Load() {
			p.report(r)
		}
		close(r.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

// report notifies the cluster of an unexpected end. Only the first few are kept: one is
// enough to make the cluster useless.
func (p *Process) report(r *run) {
	select {
	case p.died <- p.exitError(r):
	default:
	}
}

func (p *Process) exitError(r *run) error {
	said := tail(p.log, r.offset, tailBytes)
	cause := r.err
	if cause == nil {
		cause = errors.New("exit status 0")
	}
	if bytes.Contains([]byte(said), []byte("address already in use")) {
		cause = fmt.Errorf("%w: %w", errPortTaken, cause)
	}
	return fmt.Errorf("%s ended: %w; the end of its log:\n%s", p.name, cause, said)
}

func (p *Process) waitReady(ctx context.Context, r *run) error {
	if p.ready == nil {
		return nil
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return p.exitError(r)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w); the end of its log:\n%s",
				p.name, err, ctx.Err(), tail(p.log, r.offset, tailBytes))
		case <-tick.C:
		}
	}
}

// signal ends the process deliberately. It is not an error if the process has just ended
// by itself: the wait for done covers that.
func (r *run) signal(sig syscall.Signal) {
	r.expected.Store(true)
	_ = r.process.Signal(sig)
}

// tailBytes is how much of a log goes into an error.
const tailBytes = 4 << 10

// tail reads the end of the file at path, not before offset and at most limit
// bytes.
func tail(path string, offset, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(offset, info.Size()-limit)
	data := make([]byte, max(0, info.Size()-from))
	n, err := f.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	data = data[:n]
	if from > offset {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return string(data)
}
