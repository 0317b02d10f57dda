// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"k8s.io/client-go/rest"
)

const (
	// roleVariable makes the command be a companion and nothing else.
	roleVariable = "WATERSHED_BENCH_ROLE"
	// taskVariable is what the companion is to do, as JSON.
	taskVariable = "WATERSHED_BENCH_TASK"
)

// roles are what companions can be. Each reads orders from in, answers with JSON, and
// ends at the latest when in does.
var roles = map[string]func(task []byte, in io.Reader, out io.Writer) error{
	"bare":     beBare,
	"informer": beInformer,
	"watchers": beWatchers,
}

// companion is this command once more, in a process of its own: what it costs is not
// counted with what is measured.
type companion struct {
	cmd *exec.Cmd
	// orders are the companion's input.
	orders  io.WriteCloser
	answers *json.Decoder
}

// startCompanion starts a role of a benchmark with a task. The caller closes it.
func startCompanion(ctx context.Context, bench, role string, task any) (*companion, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	c := &companion{cmd: exec.CommandContext(ctx, self, bench)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role, taskVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.orders, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil { // the heading
		c.close()
		return nil, fmt.Errorf("%s did not start: %w", role, err)
	}
	c.answers = json.NewDecoder(lines)
	return c, nil
}

// tell gives an order: a line.
func (c *companion) tell(order string) error {
	_, err := io.WriteString(c.orders, order+"\n")
	return err
}

// close ends the companion and waits for it.
func (c *companion) close() {
	_ = c.orders.Close()
	_ = c.cmd.Wait() // it was told to end
}

// isCompanion reports whether this process is a companion. Then it has been one.
func isCompanion(out io.Writer) (bool, error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	role := roles[name]
	if role == nil {
		return true, fmt.Errorf("no companion is called %s", name)
	}
	return true, role([]byte(os.Getenv(taskVariable)), os.Stdin, out)
}

// access is how a companion reaches a server.
type access struct {
	Name, Host, Token string
	CA                []byte
}

func (s *server) access() access {
	return access{Name: s.name, Host: s.cfg.Host, Token: s.cfg.BearerToken, CA: s.cfg.CAData}
}

// server is the other way round, without a process to measure.
func (a access) server() *server {
	return &server{name: a.Name, cfg: &rest.Config{
		Host: a.Host, BearerToken: a.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA},
	}}
}
