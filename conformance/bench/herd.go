// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// herdVariable makes the command simulate clusters and nothing else: the options, as
// JSON. A herd is a process of its own, so that what it costs is not counted.
const herdVariable = "WATERSHED_BENCH_HERD"

// herd is simulated clusters in another process.
type herd struct {
	cmd  *exec.Cmd
	stop io.Closer
	// addr is where it takes orders.
	addr string
}

// order is what a herd can be told to do.
type order struct {
	// Churn is changes per second over all clusters, for so many Seconds.
	Churn, Seconds int
}

// pasture is how a cluster of a herd is reached.
type pasture struct {
	Name, Host, Token, ServerName string
	CA                            []byte
}

func (p pasture) config() *rest.Config {
	return &rest.Config{Host: p.Host, BearerToken: p.Token, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA, ServerName: p.ServerName}}
}

// startHerd starts the process and returns when it serves.
func startHerd(ctx context.Context, opts simulated.Options) (*herd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(opts)
	if err != nil {
		return nil, err
	}
	h := &herd{cmd: exec.CommandContext(ctx, self, "fleet")}
	h.cmd.Env = append(os.Environ(), herdVariable+"="+string(text))
	h.cmd.Stderr = os.Stderr
	if h.stop, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "herd at "); ok {
			h.addr = addr
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
			return h, nil
		}
	}
	h.close()
	return nil, fmt.Errorf("the simulated clusters did not start: %w", lines.Err())
}

func (h *herd) close() {
	_ = h.stop.Close()
	_ = h.cmd.Wait() // it was told to end
}

// isHerd reports whether this process is a herd. Then it has been one.
func isHerd(out io.Writer) (bool, error) {
	text := os.Getenv(herdVariable)
	if text == "" {
		return false, nil
	}
	var opts simulated.Options
	if err := json.Unmarshal([]byte(text), &opts); err != nil {
		return true, err
	}
	s, err := simulated.New(&opts)
	if err != nil {
		return true, err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return true, err
	}
	fmt.Fprintf(out, "herd at %s\n", l.Addr())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go obey(s, conn)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin) // until who started it is gone
	os.Exit(0)
	return true, nil
}

// obey tells where the clusters are, and does what it is told.
func obey(s *simulated.Server, conn net.Conn) {
	defer conn.Close()
	pastures := make([]pasture, s.Clusters())
	for i := range pastures {
		c := s.Cluster(i)
		cfg := c.Config()
		pastures[i] = pasture{c.Name(), cfg.Host, cfg.BearerToken, cfg.ServerName, cfg.CAData}
	}
	if json.NewEncoder(conn).Encode(pastures) != nil {
		return
	}
	orders, answers := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var o order
		if orders.Decode(&o) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.Seconds)*time.Second)
		n := s.Churn(ctx, o.Churn)
		cancel()
		if answers.Encode(n) != nil {
			return
		}
	}
}

// reins lead to a herd.
type reins struct {
	conn     net.Conn
	answers  *json.Decoder
	pastures []pasture
}

func takeReins(addr string) (*reins, error) {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return nil, err
	}
	r := &reins{conn: conn, answers: json.NewDecoder(conn)}
	if err := r.answers.Decode(&r.pastures); err != nil {
		return nil, err
	}
	slices.SortFunc(r.pastures, func(a, b pasture) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// churn has pods change, and returns how many did.
func (r *reins) churn(perSecond, seconds int) (int, error) {
	if err := json.NewEncoder(r.conn).Encode(order{perSecond, seconds}); err != nil {
		return 0, err
	}
	var n int
	return n, r.answers.Decode(&n)
}
