// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command kubebuild builds the Kubernetes, etcd and kwok commands that the tests run,
// from source and for this machine, into the cache directory that package binaries defines.
// Existing commands are not built again. If WATERSHED_KUBE_VERSION is set, it builds that
// version of Kubernetes, in addition to any other. With the flag -helm it builds helm
// instead.
//
// A first build takes minutes, so it reports its progress. It may be interrupted and
// started again at any time: a file appears under its final name only when it is
// complete, and Go's own build cache keeps compiled packages.
package main

import (
	"context"
	"flag"
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
	helm := flag.Bool("helm", false, "build helm instead")
	flag.Parse()
	if err := run(ctx, *helm); err != nil {
		fmt.Fprintln(os.Stderr, "kubebuild:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, helm bool) error {
	set, err := binaries.Load()
	if err != nil {
		return err
	}
	if helm {
		if err := locked(func() error { return build(ctx, set.Helm) }); err != nil {
			return fmt.Errorf("build helm %s: %w", set.Helm.Version, err)
		}
		fmt.Printf("%-24s %-8s %s\n", set.Helm.Name, set.Helm.Version, set.Helm.Path)
		return nil
	}
	if len(set.Missing()) > 0 {
		if err := locked(func() error { return buildAll(ctx, set) }); err != nil {
			return err
		}
	}
	for _, c := range set.All() {
		fmt.Printf("%-24s %-8s %s\n", c.Name, c.Version, c.Path)
	}
	fmt.Printf("%-24s %-8s %s\n", "kwok stages", set.Kwok.Version, set.Stages)
	return nil
}

// locked calls f while no other process builds.
func locked(f func() error) error {
	cache, err := binaries.CacheDir()
	if err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(cache, "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	return f()
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
