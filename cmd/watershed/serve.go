// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/replica"
	"github.com/watershed-project/watershed/wire"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	state             state
	kubeconfig        string
	contexts          []string
	listen            string
	resources, except []string
	scope             fleet.Scope
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
kubeconfig. Contexts that are added to the kubeconfig later, or removed, count at once.

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
	flags.StringVarP(&o.scope.Namespace, "namespace", "n", "", "mirror one `namespace` only, and nothing that has no namespace, as credentials that are bound to it require")
	flags.StringVarP(&o.scope.LabelSelector, "selector", "l", "", "mirror only objects that a label `selector` matches")
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
	if err := o.state.open(); err != nil {
		return err
	}
	release, err := o.state.lock()
	if err != nil {
		return err
	}
	defer release()
	listener, err := listenLoopback(ctx, o.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: choose another address with --listen", err)
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	contexts, err := o.clusters(logger)
	if err != nil {
		return err
	}
	ca, made, err := o.state.openAuthority(time.Now)
	if err != nil {
		return err
	}
	if made {
		logger.Info("created a certificate authority: clients need the output of watershed kubeconfig", "file", o.state.authorityFile())
	}
	ca.address = loopbackIP(listener)
	address := listener.Addr().String()
	f, err := fleet.New(others{contexts, address, ca.pem, logger}, o.fleetOptions(logger))
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
	files, err := absolute(contexts.Paths())
	if err != nil {
		return err
	}
	withdraw, err := o.state.announce(server{Address: address, Kubeconfig: files})
	if err != nil {
		return err
	}
	defer withdraw()
	logger.Info("serving", "url", "https://"+address, "kubeconfig", strings.Join(files, ","), "state", o.state.dir, "version", version())
	return s.run(ctx)
}

func (o *serveOptions) fleetOptions(logger *slog.Logger) *fleet.Options {
	opts := &fleet.Options{Resources: o.resources, Except: o.except, Scope: o.scope, History: o.history << 20, Logger: logger}
	if o.dropManagedFields {
		opts.Drop = wire.ManagedFields
	}
	return opts
}

// clusters returns the directory of the contexts to mirror, all of which exist now.
func (o *serveOptions) clusters(logger *slog.Logger) (*directory.Kubeconfig, error) {
	opts := &directory.KubeconfigOptions{Contexts: o.contexts, Logger: logger}
	if o.kubeconfig != "" {
		opts.Paths = []string{o.kubeconfig}
	}
	contexts := directory.NewKubeconfig(opts)
	found, err := contexts.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: name another file with --kubeconfig", err)
	}
	files := strings.Join(contexts.Paths(), ", ")
	if len(found) == 0 {
		return nil, fmt.Errorf("kubeconfig %s has no contexts: there is nothing to mirror", files)
	}
	for _, c := range found {
		if !c.Exists {
			return nil, fmt.Errorf("context %q does not exist in kubeconfig %s: %s", c.Name, files, existing(opts.Paths))
		}
	}
	return contexts, nil
}

// existing lists the contexts of kubeconfig files for an error message.
func existing(paths []string) string {
	all, err := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: paths}).Read()
	if err != nil || len(all) == 0 {
		return "it has none"
	}
	var names []string
	for _, c := range all[:min(len(all), 20)] {
		names = append(names, c.Name)
	}
	text := "it has " + strings.Join(names, ", ")
	if len(all) > len(names) {
		text += fmt.Sprintf(" and %d more", len(all)-len(names))
	}
	return text
}

func absolute(paths []string) ([]string, error) {
	all := make([]string, 0, len(paths))
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		all = append(all, path)
	}
	return all, nil
}

// others is a directory without the contexts that lead back to the server itself: a
// kubeconfig that lists this replica must not make it mirror itself. The server is
// known by its address and by its authority, which stays the same when it listens
// elsewhere.
type others struct {
	fleet.Directory
	address   string
	authority []byte
	logger    *slog.Logger
}

func (d others) Follow(ctx context.Context, tell func([]fleet.Entry)) error {
	logged := map[string]bool{}
	return d.Directory.Follow(ctx, func(entries []fleet.Entry) {
		tell(slices.DeleteFunc(entries, func(e fleet.Entry) bool {
			if e.Config == nil || !d.isServer(e.Config) {
				return false
			}
			if !logged[e.Name] {
				logged[e.Name] = true
				d.logger.Info("context left out: it leads to this server", "cluster", e.Name)
			}
			return true
		}))
	})
}

func (d others) isServer(cfg *rest.Config) bool {
	return strings.HasPrefix(cfg.Host+"/", "https://"+d.address+"/") ||
		len(d.authority) > 0 && bytes.Equal(bytes.TrimSpace(cfg.CAData), bytes.TrimSpace(d.authority))
}
