// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

// pair is two replicas behind a load balancer. Clients trust one authority for both, and the owner
// has the same token.
type pair struct {
	t        *testing.T
	balancer *balancer

	mu sync.Mutex
	// dirs have the state of the present processes.
	dirs     [2]string
	replicas [2]*program.Process
	all      []*program.Process
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, balancer: newBalancer(t), dirs: [2]string{t.TempDir(), t.TempDir()}}
	t.Cleanup(func() {
		for _, one := range p.all {
			_ = one.Cmd.Process.Signal(syscall.SIGCONT)
			one.Stop()
		}
		for i, one := range p.replicas {
			if t.Failed() && one != nil {
				t.Logf("the end of the log of replica %d:\n%s", i, one.Tail())
			}
		}
	})
	return p
}

// start starts a replica and adds it to the load balancer. Of the first one, the next ones have the
// authority and the token.
func (p *pair) start(which int, binary string, env []string, flags ...string) {
	p.t.Helper()
	if len(p.all) > 0 {
		for _, name := range []string{"authority.pem", "owner.token"} {
			text, err := os.ReadFile(filepath.Join(p.all[0].StateDir, name))
			expect.NoError(p.t, err)
			state := filepath.Join(p.dirs[which], "state")
			expect.NoError(p.t, os.MkdirAll(state, 0o700))
			expect.NoError(p.t, os.WriteFile(filepath.Join(state, name), text, 0o600))
		}
	}
	one, err := program.StartBinary(p.t.Context(), binary, env, p.dirs[which], flags...)
	expect.NoError(p.t, err)
	p.mu.Lock()
	p.replicas[which], p.all = one, append(p.all, one)
	p.mu.Unlock()
	p.balancer.set(which, one)
}

// at returns a present process.
func (p *pair) at(which int) *program.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replicas[which]
}

// awaitReady waits until the load balancer uses both replicas.
func (p *pair) awaitReady() {
	p.t.Helper()
	expect.Eventually(p.t, patience, func() error {
		if n := p.balancer.readyCount(); n < 2 {
			return fmt.Errorf("%d replicas are ready", n)
		}
		return nil
	})
}
