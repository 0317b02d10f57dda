// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// patience is how long any step may take on a machine that is busy with other tests. It
// is not a measure of how long it should take.
const patience = 90 * time.Second

// build builds every program here, and returns the folder and the names. Without debug
// information, linking takes half as long.
func build(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator),
		"./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return dir, names
}

// program is a running program.
type program struct {
	name           string
	process        *os.Process
	stdout, stderr output
	exited         chan struct{}
	err            error // set when it has exited
}

// start runs a program until the test ends. It holds a thread for the program, because
// the program dies with that thread: see childAttr.
func start(t *testing.T, kubeconfig, path string, args ...string) *program {
	t.Helper()
	p := &program{name: strings.Join(append([]string{filepath.Base(path)}, args...), " "), exited: make(chan struct{})}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.SysProcAttr = childAttr()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.process = cmd.Process
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	t.Cleanup(func() {
		_ = p.process.Kill() // nothing to do if it has exited
		<-p.exited
		if t.Failed() {
			t.Logf("%s printed\n%s%s", p.name, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

// await waits until the printed lines are right.
func (p *program) await(t *testing.T, what string, right func(lines []string) bool) {
	t.Helper()
	deadline := time.After(patience)
	for !right(p.stdout.lines()) {
		select {
		case <-p.exited:
			if !right(p.stdout.lines()) {
				t.Fatalf("%s exited (%v) without %s", p.name, p.err, what)
			}
			return
		case <-deadline:
			t.Fatalf("%s printed no %s", p.name, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// awaitText waits until a line contains a text.
func (p *program) awaitText(t *testing.T, text string) {
	t.Helper()
	p.await(t, text, func(lines []string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) })
	})
}

// finish waits for the program to end by itself.
func (p *program) finish(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		if p.err != nil {
			t.Errorf("%s: %v", p.name, p.err)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not end", p.name)
	}
}

// interrupt sends the signal of Ctrl-C. The program must end without errors, and soon.
func (p *program) interrupt(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Errorf("%s ended before it was interrupted: %v", p.name, p.err)
		return
	default:
	}
	begin := time.Now()
	if err := p.process.Signal(os.Interrupt); err != nil {
		t.Fatalf("interrupt %s: %v", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not end within 10 s of Ctrl-C", p.name)
	}
	if p.err != nil {
		t.Errorf("%s after Ctrl-C: %v", p.name, p.err)
	}
	if text := p.stderr.String(); strings.Contains(text, "ERROR") {
		t.Errorf("%s complained:\n%s", p.name, text)
	}
	t.Logf("%s ended %s after Ctrl-C", p.name, time.Since(begin).Round(time.Millisecond))
}

// output collects the output of a program.
type output struct{ expect.Output }

// lines returns the complete lines.
func (o *output) lines() []string {
	text := o.String()
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return nil
	}
	return strings.Split(text[:end], "\n")
}

// wantInOrder checks that the program has printed all texts, in this order.
func (p *program) wantInOrder(t *testing.T, texts ...string) {
	t.Helper()
	rest := p.stdout.String()
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("%s did not print %q, or not in the order of %q:\n%s", p.name, text, texts, p.stdout.String())
			return
		}
		rest = after
	}
}

// podLines has the patterns of lines about pods: the event, the pod and, if the program
// prints it, the phase.
var podLines = map[string]*regexp.Regexp{
	"kubectl":   regexp.MustCompile(`^(ADDED|MODIFIED|DELETED) (\S+) (\S+)$`),
	"listwatch": regexp.MustCompile(`^(ADDED|MODIFIED|DELETED) : (\S+) - (\S+)$`),
	"reflector": regexp.MustCompile(`^(Added|Updated|Deleted) : (\S+) : (\S+)$`),
	"factory":   regexp.MustCompile(`^(Added|Updated|Deleted) : default/(\S+) : (\S+)$`),
	"fleet":     regexp.MustCompile(`^(Added|Updated|Deleted) +examples/default/(\S+) \d+$`),
	"watchdog":  regexp.MustCompile(`^On(Add|Update|Delete): (\S+)$`),
	"first":     regexp.MustCompile(`^first +On(Add|Update|Delete): (\S+) (?:\S+ to )?(\S+)$`),
	"late":      regexp.MustCompile(`^late +On(Add|Update|Delete): (\S+) (?:\S+ to )?(\S+)$`),
	"second":    regexp.MustCompile(`^second +On(Add|Update|Delete): (\S+) (?:\S+ to )?(\S+)$`),
}

// podEvents returns the events that were printed for a pod, with the queue's names.
func podEvents(lines []string, printer, pod string) []string {
	words := map[string]string{
		"ADDED": "Added", "Add": "Added",
		"MODIFIED": "Updated", "Update": "Updated",
		"DELETED": "Deleted", "Delete": "Deleted",
	}
	var events []string
	for _, line := range lines {
		m := podLines[printer].FindStringSubmatch(line)
		if m == nil || m[2] != pod {
			continue
		}
		if word, ok := words[m[1]]; ok {
			m[1] = word
		}
		events = append(events, strings.Join(append([]string{m[1]}, m[3:]...), " "))
	}
	return events
}
