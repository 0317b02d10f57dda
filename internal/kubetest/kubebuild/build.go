// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// ldflags returns the linker flags of a release build as far as they are visible: the
// version that the command reports, and no debug information.
func ldflags(c binaries.Command) string {
	switch c.Module {
	case "k8s.io/kubernetes":
		part := strings.SplitN(strings.TrimPrefix(c.Version, "v"), ".", 3)
		const v = "k8s.io/component-base/version."
		return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s",
			v, c.Version, v, part[0], v, part[1])
	case "sigs.k8s.io/kwok":
		return "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=" + c.Version
	case "helm.sh/helm/v3":
		return "-s -w -X helm.sh/helm/v3/internal/version.version=" + c.Version
	default:
		return "-s -w"
	}
}

// build builds one command, unless it exists.
func build(ctx context.Context, c binaries.Command) error {
	if exists(c.Path) {
		return nil
	}
	dir := filepath.Dir(c.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sweep(dir)
	partial, err := os.MkdirTemp(dir, ".partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)

	p := newProgress(os.Stdout, c.Name+" "+c.Version)
	defer p.close()
	list, err := goCommand(ctx, c.Source, "list", "-deps", c.Package).Output()
	if err != nil {
		return withStderr(err)
	}
	p.of(bytes.Count(list, []byte("\n")))

	out := filepath.Join(partial, c.Name)
	cmd := goCommand(ctx, c.Source, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", ldflags(c), "-o", out,
		c.Package)
	if err := compile(cmd, p); err != nil {
		return err
	}
	if err := os.Rename(out, c.Path); err != nil {
		return err
	}
	p.done()
	return nil
}

// exists reports whether a file exists. It is called only while the lock is held, so the
// result stays true.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sweep removes the files of killed builds. The files of a running build are younger.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".partial-*"))
	for _, l := range left {
		if info, err := os.Stat(l); err == nil && time.Since(info.ModTime()) > 2*time.Hour {
			_ = os.RemoveAll(l)
		}
	}
}

// compile runs go build and counts the packages in its output. All other output explains
// a failure.
func compile(cmd *exec.Cmd, p *progress) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var said []string
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); isPackage(line) {
			p.add()
		} else if !strings.HasPrefix(line, "go: downloading ") {
			said = append(said, line)
		}
	}
	if err := cmd.Wait(); err != nil {
		if len(said) > 0 {
			err = fmt.Errorf("%w\n%s", err, strings.Join(said, "\n"))
		}
		return err
	}
	return nil
}

// isPackage reports whether a line of go build -v is an import path and not a message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :#\t")
}

// copyStages copies the stage files from kwok's module, all or none.
func copyStages(ctx context.Context, set *binaries.Set) error {
	if exists(set.Stages) {
		return nil
	}
	out, err := goCommand(ctx, set.Kwok.Source, "list", "-m", "-f", "{{.Dir}}", set.Kwok.Module).Output()
	if err != nil {
		return withStderr(err)
	}
	from := filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage")
	partial, err := os.MkdirTemp(filepath.Dir(set.Stages), ".partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	for _, pattern := range []string{
		"node/fast/node-initialize.yaml",
		"node/heartbeat/node-heartbeat.yaml",
		"pod/general/pod-*.yaml",
	} {
		files, err := filepath.Glob(filepath.Join(from, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no %s in %s", pattern, from)
		}
		for _, f := range files {
			if err := copyFile(filepath.Join(partial, filepath.Base(f)), f); err != nil {
				return err
			}
		}
	}
	return os.Rename(partial, set.Stages)
}

func copyFile(to, from string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		_ = w.Close()
		return err
	}
	return w.Close()
}

// goCommand runs the go tool in the nested module dir. It does not pass on GOWORK and
// GOFLAGS of the caller, which could change which code is built. cgo is off, so that the
// commands need no C compiler and run on any Linux of this architecture.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	// An interrupted go command removes its temporary files; a killed one
	// cannot.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
