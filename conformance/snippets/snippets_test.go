// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/snippets"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
	"github.com/watershed-project/watershed/internal/kubetest/podprocess"
	"github.com/watershed-project/watershed/internal/layout"
)

const root = "../.."

// patience is how long one command of a page may take on a machine that is busy with other
// tests. It is not a measure of how long it should take.
const patience = 2 * time.Minute

// compilePatience is the same for a command of go, which compiles packages that are not in Go's cache.
const compilePatience = 10 * time.Minute

// slow is how long a command takes that the log names.
const slow = 5 * time.Second

// TestPages runs the console snippets of the documentation, page by page.
func TestPages(t *testing.T) {
	tools := t.TempDir()
	build(t, tools, "./kind")
	for _, r := range readers {
		t.Run(r.name, func(t *testing.T) { r.test(t, tools) })
	}
}

func build(t *testing.T, dir, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+string(filepath.Separator), what)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", what, err, out)
	}
}

// test runs the pages of a reader.
func (r *reader) test(t *testing.T, tools string) {
	if r.helm {
		needsHelm(t, tools)
	}
	env := environment(t, t.TempDir(), tools, clusters(t, r, tools))
	dir := t.TempDir()
	for i := range r.pages {
		p := &r.pages[i]
		start := time.Now()
		done := t.Run(p.path, func(t *testing.T) { p.test(t, dir, env) })
		t.Logf("%s: %.1f s", p.path, time.Since(start).Seconds())
		if !done {
			return // the next pages continue this one
		}
	}
}

// needsHelm adds helm to the tools, and skips the test if it cannot be run here.
func needsHelm(t *testing.T, tools string) {
	t.Helper()
	if err := podprocess.Available(t.Context()); err != nil {
		t.Skip(err)
	}
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(set.Helm.Path); err != nil {
		t.Skip("helm is not built: run make chart")
	}
	if err := os.Symlink(set.Helm.Path, filepath.Join(tools, "helm")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

func (p *page) test(t *testing.T, dir string, env []string) {
	commands, n := parse(t, p.path)
	shell, err := snippets.NewShell(dir, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shell.Close(); err != nil {
			t.Error(err)
		}
	})
	var before []snippets.Command
	if text := strings.TrimSpace(p.prepare); text != "" {
		if before, _, err = snippets.Parse("```console\n" + text + "\n```"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range before {
		typeCommand(t, shell, p.path, c)
	}
	chosen := p.snippets(t, commands)
	t.Logf("%d of %d snippets", len(chosen), n)
	for _, c := range commands {
		if !slices.Contains(chosen, c.Snippet) {
			continue
		}
		for text, other := range p.instead {
			if strings.HasPrefix(c.Text, text) {
				c.Text = other
			}
		}
		typeCommand(t, shell, p.path, c)
	}
}

func parse(t *testing.T, path string) ([]snippets.Command, int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	commands, n, err := snippets.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return commands, n
}

// snippets returns the numbers of the snippets of the page that are run.
func (p *page) snippets(t *testing.T, commands []snippets.Command) []int {
	t.Helper()
	var chosen []int
	last, unknown := 0, append(slices.Clone(p.only), p.not...)
	for _, c := range commands {
		if c.Snippet == last {
			continue
		}
		last = c.Snippet
		begins := func(text string) bool { return strings.HasPrefix(c.Text, text) }
		if (len(p.only) == 0 || slices.ContainsFunc(p.only, begins)) && !slices.ContainsFunc(p.not, begins) {
			chosen = append(chosen, c.Snippet)
		}
		unknown = slices.DeleteFunc(unknown, begins)
	}
	if len(unknown) > 0 {
		t.Fatalf("%s has no snippets that begin with %q", p.path, unknown)
	}
	return chosen
}

// clusters starts the clusters of a reader for the stand-in of kind, and returns the folder of their
// kubeconfigs.
func clusters(t *testing.T, r *reader, tools string) string {
	t.Helper()
	dir := t.TempDir()
	for i := range r.clusters {
		opts := &kubetest.Options{Name: fmt.Sprint("kind", i), Nodes: 1}
		forward := listenForward(t)
		if r.helm {
			opts.Kubelet = &kubetest.Kubelet{ForwardTo: forward.Addr().(*net.TCPAddr).Port, Except: podLabel}
		}
		c := kubetest.Start(t, opts)
		if r.helm {
			startKubelet(t, c, dir, forward)
		}
		text, err := os.ReadFile(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("free-", i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl := filepath.Join(tools, "kubectl")
		if err := os.Symlink(c.KubectlPath(), kubectl); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// environment returns the variables of a reader who has nothing but the tools, and Go's caches,
// so that nothing is compiled twice. The project's address leads to this checkout.
func environment(t *testing.T, home, tools, clusters string) []string {
	t.Helper()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"HOME=" + home, "PATH=" + tools + ":" + os.Getenv("PATH"), "WATERSHED_KIND=" + clusters,
		"CHECKOUT=" + checkout, "GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=url." + checkout + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/watershed-project/watershed",
		"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*",
	}
	for _, name := range []string{
		"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOFLAGS", "CGO_ENABLED",
	} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatalf("go env %s: %v", name, err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// typeCommand runs a command and compares its output with the page.
func typeCommand(t *testing.T, shell *snippets.Shell, path string, c snippets.Command) {
	t.Helper()
	limit := patience
	if strings.HasPrefix(c.Text, "go ") {
		limit = compilePatience
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	where := fmt.Sprintf("%s:%d: %s", path, c.Line, c.Text)
	start := time.Now()
	defer func() {
		if took := time.Since(start); took > slow {
			t.Logf("%s took %.0f s", where, took.Seconds())
		}
	}()
	if c.Stays {
		got, err := shell.Start(ctx, c.Text, func(lines []string) bool { return snippets.Match(c.Want, lines) })
		if err != nil {
			t.Fatalf("%s: %v\nit printed\n%s\nand the page shows\n%s", where, err, join(got), join(c.Want))
		}
		return
	}
	var last []string
	for {
		got, status, err := shell.Run(ctx, c.Text)
		switch {
		case err != nil:
			t.Fatalf("%s: %v\nbefore, it printed\n%s", where, err, join(last))
		case status == c.Status && (len(c.Want) == 0 || snippets.Match(c.Want, got)):
			return
		case repeatable(c.Text) && ctx.Err() == nil:
			// A reader looks again until the cluster has done its work.
			last = got
			select {
			case <-time.After(200 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		t.Fatalf("%s: exit status %d\nit printed\n%s\nand the page shows\n%s", where, status, join(got), join(c.Want))
	}
}

var reads = regexp.MustCompile(`^(kubectl |bin/)?watershed (status|log|changes|verify)\b`)

// repeatable reports whether a command only reads.
func repeatable(command string) bool {
	return strings.Contains(command, " get ") && !strings.Contains(command, "|") || reads.MatchString(command)
}

func join(lines []string) string { return "  " + strings.Join(lines, "\n  ") }

// TestPages_haveAReason fails if a console snippet is neither run nor left out with a reason, and prints
// how many snippets are left out.
func TestPages_haveAReason(t *testing.T) {
	paths, err := layout.Paths(root, ".md")
	if err != nil {
		t.Fatal(err)
	}
	isRun := map[string][]int{}
	for _, r := range readers {
		for i := range r.pages {
			p := &r.pages[i]
			commands, _ := parse(t, p.path)
			isRun[p.path] = append(isRun[p.path], p.snippets(t, commands)...)
		}
	}
	unused := maps.Clone(left)
	total, without := 0, 0
	for _, path := range paths {
		commands, n := parse(t, path)
		total += n
		last := 0
		for _, c := range commands {
			if c.Snippet == last {
				continue
			}
			last = c.Snippet
			reason := ""
			for l, r := range left {
				if l.path == path && strings.HasPrefix(c.Text, l.command) {
					reason = r
					delete(unused, l)
				}
			}
			switch run := slices.Contains(isRun[path], c.Snippet); {
			case run && reason != "":
				t.Errorf("%s:%d: %s is run, and left out", path, c.Line, c.Text)
			case !run && reason == "":
				t.Errorf("%s:%d: %s is not run: add the page to readers, or the snippet to left with a reason",
					path, c.Line, c.Text)
			case !run:
				without++
				t.Logf("not run: %s:%d: %s", path, c.Line, reason)
			}
		}
	}
	for l := range unused {
		t.Errorf("left has %+v, which is not on the page", l)
	}
	t.Logf("%d of %d console snippets are not run", without, total)
}
