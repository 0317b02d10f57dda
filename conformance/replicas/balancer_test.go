// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/program"
)

// balancerCheck is how often the balancer checks its servers.
const balancerCheck = 200 * time.Millisecond

// balancer passes TCP connections on to one of two servers that are ready, at random, like a Service.
// Open connections stay where they are when a server is not ready any more.
type balancer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	servers [2]balancedServer
	conns   map[net.Conn]struct{}
	// passed has the process that each connection of a client was passed on to, by the client's address.
	passed map[string]*program.Process
	closed bool
}

// balancedServer is a server of a balancer.
type balancedServer struct {
	process *program.Process
	client  *http.Client
	ready   bool
	open    int
}

func newBalancer(t *testing.T) *balancer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: l, conns: map[net.Conn]struct{}{}, passed: map[string]*program.Process{}}
	ctx, cancel := context.WithCancel(context.Background())
	b.running.Go(b.accept)
	for i := range b.servers {
		b.running.Go(func() { b.check(ctx, i) })
	}
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		b.mu.Lock()
		b.closed = true
		for c := range b.conns {
			_ = c.Close()
		}
		b.mu.Unlock()
		b.running.Wait()
	})
	return b
}

// set sets a server, which is not ready until it has been checked.
func (b *balancer) set(which int, process *program.Process) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(process.CA)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.servers[which]
	s.process, s.ready = process, false
	s.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
		Timeout:   time.Second,
	}
}

// check requests /readyz until ctx ends.
func (b *balancer) check(ctx context.Context, which int) {
	ticker := time.NewTicker(balancerCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		s := b.servers[which]
		b.mu.Unlock()
		if s.client == nil {
			continue
		}
		ready := false
		resp, err := s.client.Get("https://" + s.process.Address + "/readyz")
		if err == nil {
			ready = resp.StatusCode == http.StatusOK
			_ = resp.Body.Close()
		}
		b.mu.Lock()
		if now := &b.servers[which]; now.process == s.process {
			now.ready = ready
		}
		b.mu.Unlock()
	}
}

func (b *balancer) readyCount() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		if s.ready {
			n++
		}
	}
	return n
}

// report logs how many connections each server has.
func (b *balancer) report(t *testing.T, when string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("%s: %d and %d connections", when, b.servers[0].open, b.servers[1].open)
}

func (b *balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.running.Go(func() { b.pass(c) })
	}
}

// choose returns a server that is ready, or -1, for a connection of a client.
func (b *balancer) choose(client net.Conn) (which int, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := rand.IntN(2)
	for i := range 2 {
		which := (first + i) % 2
		if s := b.servers[which]; s.ready {
			b.passed[client.RemoteAddr().String()] = s.process
			return which, s.process.Address
		}
	}
	return -1, ""
}

// processOf returns the process that a connection of a client leads to, by the client's address.
func (b *balancer) processOf(client net.Addr) *program.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passed[client.String()]
}

// pass passes a connection on until one side closes it.
func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	which, address := b.choose(client)
	if which < 0 {
		return
	}
	server, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !b.keep(which, client, server) {
		return
	}
	defer b.drop(which, client, server)
	var copying sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		copying.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = client.Close()
			_ = server.Close()
		})
	}
	copying.Wait()
}

func (b *balancer) keep(which int, conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		b.conns[c] = struct{}{}
	}
	b.servers[which].open++
	return !b.closed
}

func (b *balancer) drop(which int, conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.conns, c)
	}
	b.servers[which].open--
}

// config returns the configuration of a client through the balancer, with the authority and the token
// of a replica's owner. Below /clusters, the token of a cluster is accepted too.
func (b *balancer) config(p *program.Process, path string) *rest.Config {
	own := p.Config()
	own.Host = "https://" + b.listener.Addr().String() + path
	return own
}
