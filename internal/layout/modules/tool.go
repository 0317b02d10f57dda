// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tool is the go command of a machine that has the published modules only.
type tool struct {
	// path is the path of the repository's top module.
	path string
	env  []string
}

// newTool returns a tool that finds the modules of the repository in proxy, and others
// where they were found before: in the module cache, or at the proxy of the machine.
//
// They have a new module cache. The go command takes it for granted that a version never
// changes, and the proxy serves other contents as the same version after each commit.
func newTool(ctx context.Context, path, proxy, cache string) (*tool, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	downloaded, next, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return &tool{path: path, env: append(os.Environ(),
		"GOWORK=off", "GOMODCACHE="+cache,
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(downloaded, "cache", "download")+","+next,
		"GONOSUMDB="+path+","+path+"/*", "GOFLAGS=-modcacherw -trimpath",
	)}, nil
}

// run runs the go command in a folder.
func (t *tool) run(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = folder, t.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), folder, err, out.Bytes())
	}
	return out.String(), nil
}

// tidiedFile is a go.mod or go.sum as it should be.
type tidiedFile struct{ name, content string }

// tidy runs go mod tidy in the copy of a module and returns the files that it changed,
// without the sums of the repository's own modules.
func (t *tool) tidy(ctx context.Context, m goModule) ([]tidiedFile, error) {
	before, err := readSums(m)
	if err != nil {
		return nil, err
	}
	if _, err := t.run(ctx, m.folder, "mod", "tidy"); err != nil {
		return nil, fmt.Errorf("module %s: %w", m.path, err)
	}
	after, err := readSums(m)
	if err != nil {
		return nil, err
	}
	var changed []tidiedFile
	for i, file := range after {
		if file.name == "go.sum" {
			file.content = t.withoutOwn(file.content)
		}
		if file != before[i] {
			changed = append(changed, file)
		}
	}
	return changed, nil
}

// readSums returns the go.mod and go.sum of a module. A module without a go.sum has an
// empty one.
func readSums(m goModule) ([]tidiedFile, error) {
	files := []tidiedFile{{name: "go.mod"}, {name: "go.sum"}}
	for i := range files {
		text, err := os.ReadFile(filepath.Join(m.folder, files[i].name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("module %s: %w", m.path, err)
		}
		files[i].content = string(text)
	}
	return files, nil
}

// withoutOwn returns a go.sum without the lines of the repository's own modules.
func (t *tool) withoutOwn(sums string) string {
	var kept strings.Builder
	for line := range strings.Lines(sums) {
		if !strings.HasPrefix(line, t.path+" ") && !strings.HasPrefix(line, t.path+"/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// library is a program of a user, which imports each face of the library.
const library = `package main

import (
	_ "%[1]s"
	_ "%[1]s/compat"
	_ "%[1]s/fleet/directory"
	_ "%[1]s/replica"
)

func main() {}
`

// unwanted are modules that a user of the library must not require.
var unwanted = []string{"github.com/prometheus/", "github.com/spf13/cobra", "sigs.k8s.io/controller-runtime"}

// use installs the program and builds a new module with the library, as users do.
func (t *tool) use(ctx context.Context, w io.Writer, version, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := t.install(ctx, w, version, folder); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "main.go"), fmt.Appendf(nil, library, t.path), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/user"}, {"get", t.path + "@" + version}, {"mod", "tidy"}, {"build", "-o", os.DevNull, "."},
	} {
		if _, err := t.run(ctx, folder, args...); err != nil {
			return err
		}
	}
	required, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	for _, path := range unwanted {
		if bytes.Contains(required, []byte(path)) {
			return fmt.Errorf("a user of the library requires %s:\n%s", path, required)
		}
	}
	fmt.Fprintf(w, "a user of the library requires %d other modules\n", bytes.Count(required, []byte(" v"))-1)
	return nil
}

// install installs the program at a version and runs it.
func (t *tool) install(ctx context.Context, w io.Writer, version, folder string) error {
	program := t.path + "/cmd/watershed@" + version
	fmt.Fprintf(w, "go install %s\n", program)
	installed := tool{path: t.path, env: append(t.env, "GOBIN="+folder)}
	if _, err := installed.run(ctx, folder, "install", program); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "watershed"), "version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("installed program: %w\n%s", err, out)
	}
	if !strings.HasPrefix(string(out), "watershed "+version+" ") {
		return fmt.Errorf("the installed program says that it is %q, want version %s", out, version)
	}
	fmt.Fprintf(w, "%s", out)
	return nil
}
