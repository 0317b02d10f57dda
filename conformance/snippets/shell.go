// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Shell is a terminal in which the commands of a page are typed one after the other.
type Shell struct {
	process *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	// end is what the shell prints after each command.
	end     string
	running []*background
}

// background is a command that runs beside the shell.
type background struct {
	process *exec.Cmd
	exited  chan struct{}
	mu      sync.Mutex
	output  bytes.Buffer
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.output.Write(p)
}

func (b *background) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return lines(b.output.String())
}

// lines splits complete lines.
func lines(text string) []string {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// NewShell starts a shell in a folder, with nothing in its environment but env. Close ends it.
func NewShell(dir string, env []string) (*Shell, error) {
	s := &Shell{process: exec.Command("bash", "--noprofile", "--norc"), end: rand.Text()}
	s.process.Dir = dir
	s.process.Env = env
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.process.Stdout = write
	s.process.Stderr = write
	s.output = bufio.NewReader(read)
	if s.input, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start bash: %w", err)
	}
	return s, write.Close()
}

// Run runs a command to its end and returns the lines that it printed and its exit status.
func (s *Shell) Run(ctx context.Context, command string) ([]string, int, error) {
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL) })
	defer stop()
	typed := fmt.Sprintf("{ %s\n} </dev/null\nstatus=$?; echo; echo %s $status\n", command, s.end)
	if _, err := io.WriteString(s.input, typed); err != nil {
		return nil, 0, err
	}
	var text strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		if err != nil {
			return nil, 0, fmt.Errorf("%s: the shell has ended after\n%s: %w", command, text.String(),
				errors.Join(err, context.Cause(ctx)))
		}
		if rest, ok := strings.CutPrefix(line, s.end+" "); ok {
			status, err := strconv.Atoi(strings.TrimSpace(rest))
			return lines(strings.TrimSuffix(text.String(), "\n")), status, err
		}
		text.WriteString(line)
	}
}

// Start starts a command that runs beside the shell, in its folder and with its variables, and
// waits until it has printed what right accepts.
func (s *Shell) Start(ctx context.Context, command string, right func(lines []string) bool) ([]string, error) {
	where, _, err := s.Run(ctx, "pwd")
	if err != nil {
		return nil, err
	}
	env, _, err := s.Run(ctx, "env -0 | base64 -w0")
	if err != nil {
		return nil, err
	}
	variables, err := decode(env[0])
	if err != nil {
		return nil, err
	}
	b := &background{process: exec.Command("bash", "-c", "exec "+command), exited: make(chan struct{})}
	b.process.Dir = where[0]
	b.process.Env = variables
	b.process.Stdout = b
	b.process.Stderr = b
	b.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	s.running = append(s.running, b)
	go func() {
		defer close(b.exited)
		_ = b.process.Wait() // its status does not matter: Close interrupts it
	}()
	for !right(b.lines()) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.exited:
			if right(b.lines()) {
				return b.lines(), nil
			}
			return b.lines(), errors.New("it has ended")
		case <-ctx.Done():
			return b.lines(), context.Cause(ctx)
		}
	}
	return b.lines(), nil
}

// patience is how long a command may take to end after an interrupt.
const patience = 20 * time.Second

// Close interrupts what still runs, as Ctrl-C does, and ends the shell. It returns an error if
// something had to be killed.
func (s *Shell) Close() error {
	var problem error
	for _, b := range s.running {
		_ = syscall.Kill(-b.process.Process.Pid, syscall.SIGINT) // it may have ended
		select {
		case <-b.exited:
		case <-time.After(patience):
			problem = fmt.Errorf("%s does not end after an interrupt", b.process)
			_ = syscall.Kill(-b.process.Process.Pid, syscall.SIGKILL)
			<-b.exited
		}
	}
	_ = s.input.Close()
	_ = syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	_ = s.process.Wait() // it was killed
	return problem
}

// decode returns the variables that env -0 has printed, in base64.
func decode(text string) ([]string, error) {
	all, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("variables of the shell: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(all), "\x00"), "\x00"), nil
}
