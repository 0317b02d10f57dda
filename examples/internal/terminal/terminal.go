// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package terminal has the common parts of the programs that need a cluster: the flags
// that select it, Ctrl-C, and the exit code.
package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/watershed-project/watershed/kube"
)

// Main parses the flags of the program together with -kubeconfig and -context, and calls
// run with the cluster that these two select. Flags may follow arguments, as with
// kubectl; flag.Args returns the arguments. Ctrl-C cancels the context that run receives.
// A second Ctrl-C ends the program at once. If run fails, Main ends the program with exit
// code 1.
func Main(run func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error) {
	always := true
	MainOptional(&always, nil, run)
}

// MainOptional is Main for a program that needs a cluster only with one of its flags. If
// connected is false after the flags were parsed, it calls alone instead of run.
func MainOptional(connected *bool, alone func(ctx context.Context, out io.Writer) error,
	run func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error,
) {
	kubeconfig := flag.String("kubeconfig", "",
		"the kubeconfig `file` (default: the files in KUBECONFIG, else ~/.kube/config)")
	kubeContext := flag.String("context", "", "the `name` of a context in it (default: the current one)")
	MainAlone(func(ctx context.Context, out io.Writer) error {
		if *connected {
			return connect(ctx, *kubeconfig, *kubeContext, run)
		}
		return alone(ctx, out)
	})
}

// MainAlone is Main for a program that needs no cluster.
func MainAlone(run func(ctx context.Context, out io.Writer) error) {
	if err := parse(flag.CommandLine, os.Args[1:]); err != nil {
		os.Exit(2) // not reached: flag.CommandLine exits by itself
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := interrupted(ctx, run(ctx, os.Stdout)); err != nil {
		program := filepath.Base(os.Args[0])
		slog.Error(program, "err", err) //nolint:sloglint // the whole message is the name of the program
		os.Exit(1)
	}
}

// parse parses flags before, between and after arguments. Afterwards the flag set has
// only the arguments.
func parse(flags *flag.FlagSet, args []string) error {
	var rest []string
	for {
		if err := flags.Parse(args); err != nil {
			return err
		}
		if flags.NArg() == 0 {
			return flags.Parse(append([]string{"--"}, rest...))
		}
		rest = append(rest, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func connect(
	ctx context.Context, kubeconfig, kubeContext string, run func(context.Context, io.Writer, *kube.Cluster) error,
) error {
	var cluster *kube.Cluster
	var err error
	if kubeconfig == "" {
		cluster, err = kube.FromContext(kubeContext)
	} else {
		cluster, err = kube.FromKubeconfig(kubeconfig, kubeContext)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer cluster.CloseIdleConnections()
	return run(ctx, os.Stdout, cluster)
}

// interrupted returns nil for an error that the interrupt caused. Most of the programs run until
// they are interrupted.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}
