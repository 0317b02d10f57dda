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
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// clockTick is what Linux counts the processor time of other processes in.
	clockTick = time.Second / 100
	// sampling is how often memory is looked at, for a peak.
	sampling = 50 * time.Millisecond
)

// server is what is measured from outside: a process that serves the API of
// Kubernetes.
type server struct {
	name string
	// cfg says where the API is, with the path below which it is.
	cfg *rest.Config
	pid int
}

func apiServer(c *kubetest.Cluster) *server {
	return &server{name: "kube-apiserver", cfg: c.Config(), pid: c.APIServer.PID()}
}

// cpu is what the process has used of its processors.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	// What is before the last bracket is the command's name, and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: /proc/%d/stat is short", s.name, s.pid)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err, err2)
}

// memory is the RSS of the process.
func (s *server) memory() (uint64, error) {
	text := strings.TrimSuffix(proc(fmt.Sprintf("/proc/%d/status", s.pid), "VmRSS"), " kB")
	kilobytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", s.name, err)
	}
	return kilobytes << 10, nil
}

// steady is the RSS when it has ceased to shrink.
func (s *server) steady() (uint64, error) {
	now, err := s.memory()
	began := time.Now()
	lowest, since := now, began
	for err == nil && time.Since(began) < patience && time.Since(since) < calm {
		time.Sleep(time.Second)
		if now, err = s.memory(); now < lowest-lowest/100 {
			lowest, since = now, time.Now()
		}
	}
	return now, err
}

// peak is the largest RSS while f runs.
func (s *server) peak(f func() error) (uint64, error) {
	done := make(chan error)
	go func() { done <- f() }()
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	var most uint64
	for {
		now, err := s.memory()
		most = max(most, now)
		select {
		case failed := <-done:
			return most, errors.Join(failed, err)
		case <-tick.C:
		}
	}
}

// idle is how many processors the process uses while this benchmark asks nothing.
func (s *server) idle(d time.Duration) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(d)
	after, err := s.cpu()
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}

// client has a connection of its own, with HTTP/2, as soon as it asks something.
func (s *server) client() (*http.Client, error) {
	config, err := rest.TLSConfigFor(s.cfg)
	if err != nil {
		return nil, err
	}
	// What is compressed and what is not is asked for with each request.
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}}, nil
}

// The forms that objects are asked for in.
const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// form is how an answer is wanted.
type form struct {
	accept string
	gzip   bool
}

// ask gets a path. The caller closes the body.
func (s *server) ask(ctx context.Context, client *http.Client, path string, f form) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", f.accept)
	req.Header.Set("Accept-Encoding", "identity")
	if f.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if s.cfg.BearerToken != "" {
		req.Header.Set("Authorization", "Bearer "+s.cfg.BearerToken)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	zipped := resp.Header.Get("Content-Encoding") == "gzip"
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || zipped && !f.gzip {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s, %s: %s", s.name, path, resp.Proto, resp.Status, resp.Header.Get("Content-Encoding"), text)
	}
	return resp.Body, nil
}
