// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a running operator.
type process struct {
	*testing.T
	// cache is the name of the cache that the operator uses.
	cache          string
	cmd            *exec.Cmd
	metricsAddress string
	pprofAddress   string

	mu  sync.Mutex
	log bytes.Buffer
}

func start(t *testing.T, cache, program, kubeconfig string, args ...string) *process {
	t.Helper()
	p := &process{T: t, cache: cache, metricsAddress: freeAddress(t), pprofAddress: freeAddress(t)}
	p.cmd = exec.Command(program, append([]string{
		"-kubeconfig", kubeconfig, "-metrics", p.metricsAddress, "-pprof", p.pprofAddress,
	}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Write collects the output of the process.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// stop sends SIGTERM to the operator, and fails the test if it does not exit cleanly.
func (p *process) stop() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			p.Errorf("the operator with %s: %v\n%s", p.cache, err, p.output())
		}
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Signal(os.Kill)
		<-ended
		p.Errorf("the operator with %s did not end\n%s", p.cache, p.output())
	}
	text := p.output()
	if strings.Contains(text, "the object has been modified") {
		p.Errorf("the operator with %s reports a conflict as an error", p.cache)
	}
	if strings.Contains(text, "level=ERROR") {
		p.Logf("the operator with %s logged\n%s", p.cache, text)
	}
}

func (p *process) get(url string) []byte {
	p.Helper()
	resp, err := http.Get(url)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return body
}

// profile makes the operator run its garbage collector.
func (p *process) profile() {
	p.Helper()
	for range 2 {
		p.get("http://" + p.pprofAddress + "/debug/pprof/heap?gc=1")
	}
}

// metrics returns the metrics by name and labels.
func (p *process) metrics() map[string]float64 {
	p.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(string(p.get("http://" + p.metricsAddress + "/metrics"))) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil {
			all[line[:at]] = value
		}
	}
	if len(all) == 0 {
		p.Fatal("there are no metrics")
	}
	return all
}

// kept returns how many bytes of decoded objects Watershed keeps because they were read twice.
// client-go's cache keeps none.
func (p *process) kept() float64 {
	p.Helper()
	return sum(p.metrics(), "watershed_values_kept_bytes", "")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr())
}
