// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/replica"
	"github.com/watershed-project/watershed/wire"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	state             state
	kubeconfig        string
	contexts          []string
	listen            string
	resources, except []string
	dropManagedFields bool
	history           int64 // MiB
	pprof             string
}

func newServeCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a read replica of clusters on this machine",
		Long: `Serve mirrors the clusters of a kubeconfig and answers the reads of their API from
the copy: each cluster at https://ADDRESS/clusters/NAME, all of them together at
https://ADDRESS/fleet. Clients need a kubeconfig of their own: see watershed
kubeconfig.

There is no access control yet. Whoever can connect reads everything that is mirrored,
so serve listens on loopback addresses only. Secrets are mirrored only if --resources
names them.`,
		Example: `  watershed serve
  watershed serve --context prod-eu --context prod-us --resources 'pods,*.apps'
  watershed serve --resources '*,secrets'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), newLogger(cmd.ErrOrStderr()), o)
		},
	}
	stateFlag(cmd, &o.state)
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the `file` with the contexts (default what KUBECONFIG names, else ~/.kube/config)")
	flags.StringArrayVar(&o.contexts, "context", nil, "a `context` to mirror; may be repeated (default every context)")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7443", "the loopback `address` to serve at; port 0 is any that is free")
	flags.StringSliceVar(&o.resources, "resources", []string{"*", "events", "events.events.k8s.io", "leases.coordination.k8s.io"},
		"`patterns` of what to mirror: pods, deployments.apps, *.apps or *; secrets, events and leases only where one names them without a star")
	flags.StringSliceVar(&o.except, "except", nil, "`patterns` of what not to mirror")
	flags.BoolVar(&o.dropManagedFields, "drop-managed-fields", false, "do not keep metadata.managedFields: clients see none")
	flags.Int64Var(&o.history, "history", 256, "how many `MiB` of past changes to keep for clients that go on with a watch")
	flags.StringVar(&o.pprof, "pprof", "", "a loopback `address` for Go's profiles (default none)")
	return cmd
}

// newLogger writes for people and machines to read. What Kubernetes' libraries have to
// say, of credential plugins above all, is said there too and not in a form of its own.
func newLogger(w io.Writer) *slog.Logger {
	logger := slog.New(slog.NewTextHandler(w, nil))
	klog.SetSlogLogger(logger)
	return logger
}

// serve mirrors and serves until ctx ends, and returns when everything has ended.
func serve(ctx context.Context, logger *slog.Logger, o serveOptions) error {
	if o.history <= 0 {
		return fmt.Errorf("--history %d: clients could not go on with a watch", o.history)
	}
	listener, err := listenLoopback(ctx, o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := o.state.open(); err != nil {
		return err
	}
	ca, made, err := o.state.openAuthority(time.Now)
	if err != nil {
		return err
	}
	if made {
		logger.Info("the authority is new: clients need what watershed kubeconfig prints", "file", o.state.authorityFile())
	}
	ca.address = loopbackIP(listener)
	address := listener.Addr().String()
	f, err := fleet.New(o.directory(logger, address), o.fleetOptions(logger))
	if err != nil {
		return err
	}
	handler, err := replica.New(f, &replica.Options{Logger: logger})
	if err != nil {
		return err
	}
	s := &service{
		endpoints: []endpoint{newEndpoint(listener, handler, ca, logger)},
		parts:     []func(context.Context) error{f.Run, handler.Run},
	}
	if o.pprof != "" {
		profiles, err := listenLoopback(ctx, o.pprof)
		if err != nil {
			return fmt.Errorf("profiles: %w", err)
		}
		defer profiles.Close()
		s.endpoints = append(s.endpoints, newProfileEndpoint(profiles, logger))
		logger.Info("profiles", "url", "http://"+profiles.Addr().String()+"/debug/pprof/")
	}
	remove, err := o.state.writeAddress(address)
	if err != nil {
		return err
	}
	defer remove()
	logger.Info("serving", "url", "https://"+address, "state", o.state.dir, "version", version())
	return s.run(ctx)
}

func (o *serveOptions) fleetOptions(logger *slog.Logger) *fleet.Options {
	opts := &fleet.Options{Resources: o.resources, Except: o.except, History: o.history << 20, Logger: logger}
	if o.dropManagedFields {
		opts.Drop = wire.ManagedFields
	}
	return opts
}

// directory is what the kubeconfig has, without this server.
func (o *serveOptions) directory(logger *slog.Logger, address string) fleet.Directory {
	opts := &fleet.ContextsOptions{Contexts: o.contexts, Logger: logger}
	if o.kubeconfig != "" {
		opts.Paths = []string{o.kubeconfig}
	}
	return others{fleet.NewContexts(opts), address}
}

// others is a directory without the contexts that lead back to the server at address:
// who has put them into their kubeconfig does not mean to mirror the mirror.
type others struct {
	fleet.Directory
	address string
}

func (d others) Follow(ctx context.Context, tell func([]fleet.Entry)) error {
	return d.Directory.Follow(ctx, func(entries []fleet.Entry) {
		tell(slices.DeleteFunc(entries, func(e fleet.Entry) bool {
			return e.Config != nil && strings.HasPrefix(e.Config.Host+"/", "https://"+d.address+"/")
		}))
	})
}
