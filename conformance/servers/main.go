// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command servers runs the fidelity, kubectl and chaos tests on several versions of
// Kubernetes and writes the support table of docs/servers.md.
//
// It selects the newest patch of each minor version that the module proxy has, builds it
// beside the pinned one, and runs the tests with it. A version that does not build is a
// row of the table too. A test that fails is counted in its row and does not stop the
// other versions. The command exits with 1 only if a supported version cannot be tested
// at all or fails chaos, which compares copies with etcd.
//
// A version takes about twenty minutes to build on two processors, once per machine, and
// ten to test.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	minors := flag.String("minors", "1.31,1.32,1.33,1.34,1.35,1.36,1.37", "minor versions to test, separated by commas")
	rounds := flag.Int("rounds", 3, "rounds of chaos for each version")
	page := flag.String("page", "../docs/servers.md", "page whose table is written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*minors, ","), *rounds, *page); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

// run tests one version after the other and updates the page after each, so that an
// interrupted run leaves the rows that it has finished.
func run(ctx context.Context, minors []string, rounds int, page string) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	versions, err := newest(ctx, root, minors)
	if err != nil {
		return err
	}
	var failed []string
	for _, v := range versions {
		fmt.Fprintf(os.Stderr, "=== Kubernetes %s\n", v)
		r := trial{root: root, version: v, rounds: rounds}.run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(os.Stderr, r)
		if err := update(page, r, time.Now()); err != nil {
			return err
		}
		if !r.built() || r.chaos != passed {
			failed = append(failed, v)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("versions %s: see the table in %s", strings.Join(failed, ", "), page)
	}
	return nil
}
