// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// program is a running program.
type program struct {
	name   string
	output expect.Output
	ended  chan struct{}
}

// start starts a program that the end of the test ends.
func start(t *testing.T, path string, args ...string) *program {
	t.Helper()
	p := &program{name: filepath.Base(path), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		if t.Failed() {
			t.Logf("%s %v: %s", p.name, args, tail(p.output.String()))
		}
	})
	return p
}

// running returns an error if the program has ended.
func (p *program) running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %s", p.name, tail(p.output.String()))
	default:
		return nil
	}
}

// tail returns the last 2 KB of an output.
func tail(output string) string { return output[max(0, len(output)-2048):] }

// freePort returns a port on loopback that nothing uses.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
