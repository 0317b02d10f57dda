// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a running program of this project.
type child struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended; read only after ended

	mu  sync.Mutex
	log bytes.Buffer
}

// build builds a program of the checkout, from a folder relative to its root that is in
// the module at module.
func build(into, module, folder string) (string, error) {
	path := filepath.Join(into, filepath.Base(filepath.Join(module, folder)))
	cmd := exec.Command("go", "build", "-o", path, "./"+folder)
	cmd.Dir = filepath.Join("..", "..", module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", filepath.Base(path), err, out)
	}
	return path, nil
}

func startChild(path string, args ...string) (*child, error) {
	c := &child{name: filepath.Base(path), cmd: exec.Command(path, args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c, c
	c.cmd.SysProcAttr = childAttr()
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return c, nil
}

// Write receives the output of the child.
func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(b)
}

// lines returns the lines that the child has printed, from line number from on.
func (c *child) lines(from int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Split(strings.TrimSuffix(c.log.String(), "\n"), "\n")
	return all[min(from, len(all)):]
}

func (c *child) tail() string {
	all := c.lines(0)
	return strings.Join(all[max(0, len(all)-20):], "\n")
}

// running returns an error if the child has ended.
func (c *child) running() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s ended: %w: %s", c.name, c.err, c.tail())
	default:
		return nil
	}
}

// kill ends the child without warning and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// stop requests the child to end and waits. It returns an error if the child does not end
// normally.
func (c *child) stop() error {
	if err := c.running(); err != nil {
		return err
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		c.kill()
		return fmt.Errorf("%s did not end: %s", c.name, c.tail())
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w: %s", c.name, c.err, c.tail())
	}
	return nil
}
