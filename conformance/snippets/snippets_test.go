// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/snippets"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/layout"
)

const root = "../.."

// patience is how long one command of a page may take on a machine that is busy with other
// tests. It is not a measure of how long it should take.
const patience = 2 * time.Minute

// page is a page whose snippets are run.
type page struct {
	path string
	// clusters is how many clusters its reader creates.
	clusters int
	// prepare are commands that its reader has run before, because the page says so.
	prepare []string
}

// builtProgram is the program of the quick start.
const builtProgram = `go build -C "$CHECKOUT" -o "$PWD/bin/watershed" ./cmd/watershed`

// ownModule is the reader's own module, with the change that the page describes.
func ownModule(imported string) string {
	return "mkdir own && cd own && go mod init example.com/own && echo 'package own; import _ \"" + imported +
		"\"' > own.go"
}

var run = []page{
	{path: "README.md", clusters: 2},
	{path: "docs/start/replica.md", clusters: 1, prepare: []string{builtProgram}},
	{path: "docs/start/operator.md", prepare: []string{ownModule("github.com/watershed-project/watershed/compat")}},
	{path: "docs/start/library.md", prepare: []string{ownModule("github.com/watershed-project/watershed/fleet")}},
}

// left are the pages with console snippets that are not run, each with the reason.
var left = map[string]string{
	"README.zh-CN.md":                    "a translation: its code blocks are compared with those of README.md",
	"deploy/helm/watershed/README.md":    "needs an image in a registry",
	"docs/ecosystem.md":                  "needs other programs, which make ecosystem runs",
	"docs/operations/install.md":         "needs a registry; make deploy runs the container of the chart as a process",
	"docs/operations/status.md":          "names clusters of the reader",
	"docs/operations/troubleshooting.md": "each snippet belongs to a failure",
	"docs/operations/upgrade.md":         "needs a registry, or two builds",
	"docs/reference/http.md":             "names clusters of the reader",
}

// TestPages runs each console snippet of the documentation, page by page.
func TestPages(t *testing.T) {
	tools := t.TempDir()
	build(t, tools, "./kind")
	for _, p := range run {
		t.Run(p.path, func(t *testing.T) { testPage(t, p, tools) })
	}
}

func build(t *testing.T, dir, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir+string(filepath.Separator), what)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", what, err, out)
	}
}

func testPage(t *testing.T, p page, tools string) {
	text, err := os.ReadFile(filepath.Join(root, p.path))
	if err != nil {
		t.Fatal(err)
	}
	commands, n, err := snippets.Parse(string(text))
	if err != nil || len(commands) == 0 {
		t.Fatalf("%d commands, %v", len(commands), err)
	}
	t.Logf("%d commands in %d snippets", len(commands), n)
	home := t.TempDir()
	shell, err := snippets.NewShell(t.TempDir(), environment(t, home, tools, clusters(t, p.clusters, tools)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shell.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range p.prepare {
		typeCommand(t, shell, p.path, snippets.Command{Text: c})
	}
	for _, c := range commands {
		typeCommand(t, shell, p.path, c)
	}
}

// clusters starts n clusters for the stand-in of kind, and returns the folder of their kubeconfigs.
func clusters(t *testing.T, n int, tools string) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		c := kubetest.Start(t, &kubetest.Options{Name: fmt.Sprint("kind", i), Nodes: 1})
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
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOFLAGS", "CGO_ENABLED", "GOSUMDB"} {
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	where := fmt.Sprintf("%s:%d: %s", path, c.Line, c.Text)
	if c.Stays {
		got, err := shell.Start(ctx, c.Text, func(lines []string) bool { return snippets.Match(c.Want, lines) })
		if err != nil {
			t.Fatalf("%s: %v\nit printed\n%s\nand the page shows\n%s", where, err, join(got), join(c.Want))
		}
		return
	}
	for {
		got, status, err := shell.Run(ctx, c.Text)
		switch {
		case err != nil:
			t.Fatalf("%s: %v", where, err)
		case status == c.Status && (len(c.Want) == 0 || snippets.Match(c.Want, got)):
			return
		case repeatable(c.Text) && ctx.Err() == nil:
			// A reader looks again until the cluster has done its work.
			select {
			case <-time.After(200 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		t.Fatalf("%s: exit status %d\nit printed\n%s\nand the page shows\n%s", where, status, join(got), join(c.Want))
	}
}

// repeatable reports whether a command only reads.
func repeatable(command string) bool {
	return strings.Contains(command, " get ") && !strings.Contains(command, "|") || strings.Contains(command, " status")
}

func join(lines []string) string { return "  " + strings.Join(lines, "\n  ") }

// TestPages_haveAReason fails if a page with console snippets is neither run nor left out with a
// reason, and prints how many snippets are left out.
func TestPages_haveAReason(t *testing.T) {
	paths, err := layout.Paths(root, ".md")
	if err != nil {
		t.Fatal(err)
	}
	total, without := 0, 0
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		_, n, err := snippets.Parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		total += n
		reason, isLeft := left[path]
		switch isRun := slices.ContainsFunc(run, func(p page) bool { return p.path == path }); {
		case isLeft && (isRun || n == 0 || reason == ""):
			t.Errorf("%s is in left, but is run, has no console snippets, or has no reason", path)
		case isLeft:
			without += n
		case !isRun && n > 0:
			t.Errorf("%s has %d console snippets that are not run: add it to run, or to left with a reason", path, n)
		}
	}
	t.Logf("%d of %d console snippets are not run", without, total)
}
