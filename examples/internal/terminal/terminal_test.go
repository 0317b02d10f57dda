// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/kube"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: here,
contexts: [{name: here, context: {cluster: c}}, {name: there, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`

func TestParse_flagsMayFollowArguments(t *testing.T) {
	for _, args := range []string{
		"-all deployments -l app=web", "deployments -l app=web -all", "-l app=web -all deployments",
	} {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		all, selector := flags.Bool("all", false, ""), flags.String("l", "", "")
		if err := parse(flags, strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if !*all || *selector != "app=web" || flags.NArg() != 1 || flags.Arg(0) != "deployments" {
			t.Errorf("%s: all %t, selector %q, arguments %q", args, *all, *selector, flags.Args())
		}
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if err := parse(flags, []string{"deployments", "-unknown"}); err == nil {
		t.Error("an unknown flag after an argument is accepted")
	}
}

func TestConnect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	name := func(want string) func(context.Context, io.Writer, *kube.Cluster) error {
		return func(_ context.Context, _ io.Writer, c *kube.Cluster) error {
			if c.Name() != want {
				t.Errorf("connected to %s, want %s", c.Name(), want)
			}
			return nil
		}
	}
	if err := connect(t.Context(), file, "", name("here")); err != nil {
		t.Error(err)
	}
	if err := connect(t.Context(), file, "there", name("there")); err != nil {
		t.Error(err)
	}
	t.Setenv("KUBECONFIG", file)
	if err := connect(t.Context(), "", "", name("here")); err != nil {
		t.Error(err)
	}
	if err := connect(t.Context(), file, "nowhere", name("")); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a context that is not there: %v", err)
	}
}

func TestInterrupted_isNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("signal")
	cancel(cause)
	for _, err := range []error{nil, ctx.Err(), fmt.Errorf("watch: %w", ctx.Err()), cause} {
		if err := interrupted(ctx, err); err != nil {
			t.Errorf("interrupted: %v", err)
		}
	}
	failed := errors.New("failed")
	if err := interrupted(ctx, failed); !errors.Is(err, failed) {
		t.Errorf("failed while it was interrupted: %v", err)
	}
	if err := interrupted(t.Context(), context.Canceled); err == nil {
		t.Error("a cancellation without an interrupt is not reported as a failure")
	}
}
