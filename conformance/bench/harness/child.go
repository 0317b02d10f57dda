// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

const (
	// roleVariable names the [Role] that a child runs.
	roleVariable = "WATERSHED_BENCH_ROLE"
	// taskVariable is the task of the role, as JSON.
	taskVariable = "WATERSHED_BENCH_TASK"
)

// Role is the work of a child process. It reads commands from in, answers in JSON,
// and ends at the latest when in ends.
type Role func(task []byte, in io.Reader, out io.Writer) error

// Child is this command started again, so that the cost of its work is not part of
// the measurement.
type Child struct {
	role    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
}

// StartChild starts a role with a task, which is passed as JSON, and with additional
// environment variables. The caller closes the child.
func StartChild(ctx context.Context, role string, task any, env ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	c := &Child{role: role, cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = slices.Concat(os.Environ(), env, []string{roleVariable + "=" + role, taskVariable + "=" + string(text)})
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.answers = json.NewDecoder(out)
	return c, nil
}

// RunAsChild runs the role that this process was started for and reports true, or
// reports false if it was not started by [StartChild].
func RunAsChild(roles map[string]Role, out io.Writer) (bool, error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	role := roles[name]
	if role == nil {
		return true, fmt.Errorf("there is no role %s", name)
	}
	return true, role([]byte(os.Getenv(taskVariable)), os.Stdin, out)
}

// PID returns the process id of the child.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Write writes to the input of the child.
func (c *Child) Write(p []byte) (int, error) { return c.in.Write(p) }

// Command sends a line to the child.
func (c *Child) Command(line string) error {
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

// Answer waits for the next JSON value from the child and decodes it.
func (c *Child) Answer(into any) error { return c.answers.Decode(into) }

// Result waits for the only answer of the child and for its end.
func (c *Child) Result(into any) error {
	err := c.Answer(into)
	_ = c.in.Close()
	if err := errors.Join(err, c.cmd.Wait()); err != nil {
		return fmt.Errorf("%s: %w", c.role, err)
	}
	return nil
}

// Close ends the input of the child and waits until the child has ended.
func (c *Child) Close() {
	_ = c.in.Close()
	_ = c.cmd.Wait() // the end of its input ended it
}
