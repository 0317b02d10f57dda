// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command modules checks the modules of the checkout as they would be published:
// without go.work, and without the files around them.
//
//	go run ./internal/layout/modules [-write]
//
// It writes a file-system module proxy from the checkout and checks that
//
//   - all modules require each other at one version, and none has a replace directive
//   - go mod tidy would change no go.mod and no go.sum
//   - go install github.com/watershed-project/watershed/cmd/watershed@version builds a
//     program that runs
//   - a new module can import the library, and requires neither Prometheus nor the
//     dependencies of the program
//
// A go.sum of this repository has no lines for the modules of this repository: their
// sums are not known before the commit is. go.work makes them unnecessary in a
// checkout, and users have their own go.sum. For that reason go mod tidy cannot be run
// in the modules that require others of the repository; -write does it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	write := flag.Bool("write", false, "write the go.mod and go.sum files that go mod tidy makes into the checkout, and do nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, ".", *write)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

// run checks the modules of the checkout at root, or tidies them.
func run(ctx context.Context, w io.Writer, root string, write bool) error {
	temporary, err := os.MkdirTemp("", "watershed-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	repo, err := copyCheckout(ctx, root, filepath.Join(temporary, "source"))
	if err != nil {
		return err
	}
	version, err := repo.version()
	if err != nil {
		return err
	}
	proxy := filepath.Join(temporary, "proxy")
	if err := repo.writeProxy(proxy, version); err != nil {
		return err
	}
	tool, err := newTool(ctx, repo.path, proxy, filepath.Join(temporary, "modules"))
	if err != nil {
		return err
	}
	for _, m := range repo.modules {
		fmt.Fprintf(w, "tidy %s\n", m.path)
		tidied, err := tool.tidy(ctx, m)
		if err != nil {
			return err
		}
		for _, file := range tidied {
			if !write {
				return fmt.Errorf("module %s is not tidy (make tidy): its %s should be\n%s", m.path, file.name, file.content)
			}
			if err := os.WriteFile(filepath.Join(root, m.subdir, file.name), []byte(file.content), 0o644); err != nil {
				return err
			}
		}
	}
	if write {
		return nil
	}
	return tool.use(ctx, w, version, filepath.Join(temporary, "user"))
}
