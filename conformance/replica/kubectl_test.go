// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
)

// terminal runs kubectl against a subject.
type terminal struct {
	kubectl, kubeconfig, cache string
}

// terminals returns kubectl for the server and for the copy.
func (w *comparedCluster) terminals(t *testing.T) (server, copy terminal) {
	t.Helper()
	dir := t.TempDir()
	server = terminal{w.cluster.KubectlPath(), w.cluster.Kubeconfig(), filepath.Join(dir, "server")}
	copy = terminal{w.cluster.KubectlPath(), w.cluster.Kubeconfig(), filepath.Join(dir, "copy")}
	if w.process != nil {
		copy.kubeconfig = filepath.Join(dir, "kubeconfig")
		if err := w.process.WriteKubeconfig(copy.kubeconfig); err != nil {
			t.Fatal(err)
		}
	}
	return server, copy
}

// passingTerminal returns kubectl for the replica that passes requests on, with the token of
// the user.
func (w *comparedCluster) passingTerminal(t *testing.T) terminal {
	t.Helper()
	dir := t.TempDir()
	k := terminal{w.cluster.KubectlPath(), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "cache")}
	text, err := w.passingProcess.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = w.passing.token
	}
	if err := clientcmd.WriteToFile(*config, k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return k
}

// output is the output of a command.
type output struct {
	stdout, stderr string
	code           int
}

func (k terminal) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig, "KUBECACHEDIR="+k.cache)
	cmd.SysProcAttr = program.ChildAttr()
	return cmd
}

func (k terminal) run(ctx context.Context, args ...string) output {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The child must not outlive the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd := k.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := output{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		o.stderr, o.code = err.Error(), -1
	}
	return o
}

// commandDifferences are commands with a different output at a replica, and the reason.
var commandDifferences = map[string]string{
	"logs db-0 -n shop": "the replica has no connections to nodes",
}

// shuffled are commands whose lines kubectl prints in the order of a Go map, which
// varies: the limits of a LimitRange.
var shuffled = []string{"describe ns stage", "describe limits limits -n stage"}

// copyTerminal is kubectl for a subject that is compared with the server.
type copyTerminal struct {
	terminal
	name string
	// differences are the commands with a different output.
	differences map[string]string
	// whole means that the subject has all versions of the server.
	whole bool

	equal int
	used  map[string]bool
}

// TestKubectl runs every command against all subjects and compares the output and the exit
// code.
func TestKubectl(t *testing.T) {
	w := theComparedCluster(t)
	server, copy := w.terminals(t)
	copies := []*copyTerminal{{terminal: copy, name: w.copy.name, used: map[string]bool{}}}
	if w.process != nil {
		copies[0].differences = commandDifferences
		copies = append(copies, &copyTerminal{
			terminal: w.passingTerminal(t), name: w.passing.name, whole: true, used: map[string]bool{},
		})
	}
	lines := commandLines()
	// The first command fills the caches of discovery, and so runs alone.
	all := []terminal{server}
	for _, c := range copies {
		all = append(all, c.terminal)
	}
	for _, k := range all {
		if o := k.run(t.Context(), "get", "ns"); o.code != 0 {
			t.Fatalf("%s: %s", k.kubeconfig, o.stderr)
		}
	}
	jobs := make(chan []string)
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range 3 {
		workers.Go(func() {
			for args := range jobs {
				unlike := w.compareCommand(t.Context(), server, copies, args)
				mu.Lock()
				for i, c := range copies {
					c.judge(t, strings.Join(args, " "), unlike[i])
				}
				mu.Unlock()
			}
		})
	}
	start := time.Now()
	for _, args := range lines {
		jobs <- args
	}
	close(jobs)
	workers.Wait()
	for _, c := range copies {
		t.Logf("%s: %d of %d commands print the same, in %.1fs", c.name, c.equal, len(lines),
			time.Since(start).Seconds())
		for line := range c.differences {
			if !c.used[line] {
				t.Errorf("%s: kubectl %s is meant to differ and does not: delete it", c.name, line)
			}
		}
	}
}

// judge records the result of a command.
func (c *copyTerminal) judge(t *testing.T, line, unlike string) {
	t.Helper()
	switch {
	case unlike == "":
		c.equal++
	case c.differences[line] != "":
		c.used[line] = true
	default:
		t.Errorf("%s: kubectl %s\n%s", c.name, line, unlike)
	}
}

// TestKubectl_connections checks the messages for commands that need a connection to a
// node.
func TestKubectl_connections(t *testing.T) {
	w := theComparedCluster(t)
	if w.process == nil {
		t.Skip("the server has connections")
	}
	_, copy := w.terminals(t)
	for _, line := range []string{
		"logs db-0 -n shop", "logs deploy/web -n shop", "exec db-0 -n shop -- ls", "port-forward pod/db-0 -n shop 0:80",
	} {
		o := copy.run(t.Context(), words(line)...)
		if want := "made from the object; send the request to " + w.cluster.Config().Host; o.code == 0 ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("kubectl %s: %d %s, want %s", line, o.code, o.stderr, want)
		}
	}
}

// compareCommand returns how the output of a command differs for each subject, "" if it does
// not. Like a request, a command is run again if the server itself does not return the same
// output twice.
func (w *comparedCluster) compareCommand(
	ctx context.Context, server terminal, copies []*copyTerminal, args []string,
) []string {
	for attempt := 0; ; attempt++ {
		outputs := make([]output, len(copies))
		for i, c := range copies {
			outputs[i] = c.run(ctx, args...)
		}
		a := server.run(ctx, args...)
		unlike, equal := make([]string, len(copies)), true
		for i, c := range copies {
			unlike[i] = differ(w.comparableOutputs(a, outputs[i], args, c.whole))
			equal = equal && unlike[i] == ""
		}
		if equal || attempt == 2 || differ(a, server.run(ctx, args...)) == "" {
			return unlike
		}
	}
}

// comparableOutputs returns the outputs of a command without differences that do not count. Whole
// means that the subject has all versions of the server.
func (w *comparedCluster) comparableOutputs(server, copy output, args []string, whole bool) (output, output) {
	if slices.Equal(args, []string{"api-versions"}) && !whole {
		server.stdout = w.mirroredVersions(server.stdout)
		if w.process == nil {
			copy.stdout = w.mirroredVersions(copy.stdout)
		}
	}
	if slices.Contains(shuffled, strings.Join(args, " ")) {
		server.stdout, copy.stdout = sortLines(server.stdout), sortLines(copy.stdout)
	}
	return server, copy
}

func sortLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// mirroredVersions returns the lines that are versions with a mirrored resource.
func (w *comparedCluster) mirroredVersions(all string) string {
	var out []string
	for line := range strings.Lines(all) {
		group, version := splitVersion(strings.TrimSpace(line))
		if w.catalogue.has(group, version, "") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// logPrefix matches the beginning of kubectl's own log lines: the time and the place in
// its code.
var logPrefix = regexp.MustCompile(`(?m)^([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (\S+\.go):\d+\]`)

// kubectlWithin is the largest time between two commands that are compared.
const kubectlWithin = 8 * time.Second

// differ returns how two outputs differ: by line, and by word within a line, because the
// width of a column depends on the ages in it.
func differ(a, b output) string {
	var out []string
	if a.code != b.code {
		out = append(out, fmt.Sprintf("\texit code: server %d, replica %d", a.code, b.code))
	}
	for _, stream := range []struct{ name, a, b string }{
		{"stdout", a.stdout, b.stdout},
		{"stderr", a.stderr, b.stderr},
	} {
		x := strings.Split(logPrefix.ReplaceAllString(stream.a, "$1 $2"), "\n")
		y := strings.Split(logPrefix.ReplaceAllString(stream.b, "$1 $2"), "\n")
		if len(x) != len(y) {
			out = append(out, fmt.Sprintf("\t%s: server %d lines, replica %d lines\n\tserver: %s\n\treplica: %s",
				stream.name, len(x)-1, len(y)-1, brief(stream.a), brief(stream.b)))
		}
		for i := 0; i < min(len(x), len(y)) && len(out) < 6; i++ {
			if !sameWords(x[i], y[i], kubectlWithin) {
				out = append(out, fmt.Sprintf("\t%s line %d\n\tserver:  %s\n\treplica: %s", stream.name, i+1,
					brief(x[i]), brief(y[i])))
			}
		}
	}
	return strings.Join(out, "\n")
}

// watchCommands run while objects change in the namespace noisy.
var watchCommands = []string{
	"get cm -n noisy -w",
	"get cm -n noisy --watch-only --show-labels",
	"get cm -n noisy -w -l color=red",
	"get cm alpha old-1 -n noisy --ignore-not-found",
	"get cm -n noisy -w -o yaml --output-watch-events",
	"get cm -A --watch-only -o name --field-selector metadata.namespace=noisy",
	"get pods -n noisy -w -o wide",
	"get wd -n noisy -w",
	"get wd -n noisy --watch-only -o json",
}

// kubectl logs these lines with -v=6, among them one for the beginning of a watch.
var (
	logOfResponses = regexp.MustCompile(`(?m)^I\d{4} .*\n?`)
	beginOfWatch   = regexp.MustCompile(`(?m)^I\d{4} .*[?&]watch=true.*200 OK`)
)

// TestKubectl_watch compares kubectl's output while objects change.
func TestKubectl_watch(t *testing.T) {
	w := theComparedCluster(t)
	server, copy := w.terminals(t)
	if err := w.before(t.Context(), "noisy"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type watching struct {
		out, log logBuffer
		ended    atomic.Bool
	}
	type both struct{ server, copy *watching }
	var running sync.WaitGroup
	pairs := make([]both, len(watchCommands))
	for i, line := range watchCommands {
		pairs[i] = both{&watching{}, &watching{}}
		for _, of := range []struct {
			k terminal
			*watching
		}{{server, pairs[i].server}, {copy, pairs[i].copy}} {
			running.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				cmd := of.k.command(ctx, append(words(line), "-v=6")...) // it logs each response
				cmd.Stdout, cmd.Stderr = &of.out, &of.log
				_ = cmd.Run() // it is killed
				of.ended.Store(true)
			})
		}
	}
	// A command that does not watch ends.
	for i, line := range watchCommands {
		for _, s := range []*watching{pairs[i].server, pairs[i].copy} {
			expect.Soon(t, "the watch of kubectl "+line, func() bool {
				return s.ended.Load() || beginOfWatch.MatchString(s.log.tail(maxBody))
			})
		}
	}
	if err := w.scene(ctx, "noisy"); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(15 * time.Second)
	for stable := 0; stable < 20 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		unequal := func(p both) bool { return p.server.out.lines() != p.copy.out.lines() }
		if stable++; slices.ContainsFunc(pairs, unequal) {
			stable = 0
		}
	}
	cancel()
	running.Wait()
	for i, line := range watchCommands {
		read := func(s *watching) output {
			return output{stdout: s.out.tail(maxBody), stderr: logOfResponses.ReplaceAllString(s.log.tail(maxBody), "")}
		}
		a, b := read(pairs[i].server), read(pairs[i].copy)
		if pairs[i].server.out.lines() < 2 && strings.Contains(line, "-w") {
			t.Errorf("kubectl %s printed nothing to compare: %s", line, a.stdout)
		}
		if unlike := differ(a, b); unlike != "" {
			t.Errorf("kubectl %s\n%s", line, unlike)
		}
	}
}

func (l *logBuffer) lines() int { return strings.Count(l.tail(maxBody), "\n") }
