// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command kubebuild builds the Kubernetes, etcd and kwok commands that the tests run,
// from source and for this machine, into the cache folder that package binaries defines.
// Existing commands are not built again. If WATERSHED_KUBE_VERSION is set, it builds that
// version of Kubernetes, in addition to any other.
//
// A first build takes minutes, so it reports its progress. It may be interrupted and
// started again at any time: a file appears under its final name only when it is
// complete, and Go's own build cache keeps compiled packages.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubebuild:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	set, err := binaries.Load()
	if err != nil {
		return err
	}
	if len(set.Missing()) > 0 {
		cache, err := binaries.CacheDir()
		if err != nil {
			return err
		}
		unlock, err := lock(filepath.Join(cache, "build.lock"))
		if err != nil {
			return err
		}
		defer unlock()
		if err := buildAll(ctx, set); err != nil {
			return err
		}
	}
	for _, c := range set.All() {
		fmt.Printf("%-24s %-8s %s\n", c.Name, c.Version, c.Path)
	}
	fmt.Printf("%-24s %-8s %s\n", "kwok stages", set.Kwok.Version, set.Stages)
	return nil
}

func buildAll(ctx context.Context, set *binaries.Set) error {
	commands := set.All()
	remove, err := giveSource(ctx, commands)
	if err != nil {
		return err
	}
	defer remove()
	for _, c := range commands {
		if err := build(ctx, c); err != nil {
			return fmt.Errorf("build %s %s: %w", c.Name, c.Version, err)
		}
	}
	if err := copyStages(ctx, set); err != nil {
		return fmt.Errorf("kwok stages %s: %w", set.Kwok.Version, err)
	}
	return nil
}

// giveSource creates a module for the commands that are not built and have none in the
// checkout. They all have the same version of Kubernetes. remove deletes the module.
func giveSource(ctx context.Context, commands []binaries.Command) (remove func(), err error) {
	var without []binaries.Command
	for _, c := range commands {
		if c.Source == "" && !exists(c.Path) {
			without = append(without, c)
		}
	}
	if len(without) == 0 {
		return func() {}, nil
	}
	dir, remove, err := generateModule(ctx, without)
	if err != nil {
		return nil, err
	}
	for i := range commands {
		if commands[i].Source == "" {
			commands[i].Source = dir
		}
	}
	return remove, nil
}
