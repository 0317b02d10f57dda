// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package serve is the command watershed serve. It connects the parts of a server: the settings, the
// fleet, access control, the replica and the HTTPS server. It runs them until the context ends, and
// applies changes of the configuration file meanwhile.
package serve

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
)

// long and example are the help text of serve.
const (
	long = `Serve mirrors clusters and answers the reads of their API from the copy: each
cluster at https://ADDRESS/clusters/NAME, all of them together at
https://ADDRESS/fleet. Clients need a kubeconfig of their own: see watershed
kubeconfig.

The clusters come from one or more sources:

  --kubeconfig, --context  every context of the kubeconfig, or those that are named
  --kubeconfig-dir         every kubeconfig file in a directory, named after the file
  --in-cluster             the cluster that serve runs in
  --cluster-api            the clusters that Cluster API manages from a hub cluster,
                           named NAMESPACE.NAME
  --cluster-profiles       the ClusterProfiles on a hub cluster, named NAMESPACE.NAME

Without any of these flags, serve mirrors every context of the kubeconfig. With
several, it mirrors the clusters of all of them. If two sources have a cluster of the
same name, the source that is higher in this list is used, and the other cluster is
left out with a warning in the log. The same cluster under several names is mirrored
once. Clusters that are added to a source or removed while serve runs are added or
removed within seconds.

The hub is the cluster that kubectl would use: the current context of the
kubeconfig or, in a pod without one, the cluster of the pod. --hub-kubeconfig and
--hub-context select another one. Its kubeconfig is read once, at the start. The hub
itself is not mirrored unless another source has it.

Every request needs credentials that the addressed cluster accepts: a bearer token or a
client certificate. The cluster decides what may be read, and is asked for that. So the
credentials of serve itself need the rights that watershed rbac prints, among them to create
tokenreviews and subjectaccessreviews. Without these two, the only user with access is the
one whose credentials serve has.

On a loopback address the person that runs serve has access too, with the token in the
state directory, which watershed kubeconfig prints: each cluster is asked what the credentials of
the kubeconfig may read there. That needs no further rights.

Below /fleet, callers are authenticated by the cluster of --home, or by OpenID Connect. Other
clusters accept their names only as far as --fleet-users and --fleet-groups allow.

Secrets are mirrored only if --resources names them.`
	example = `  watershed serve
  watershed serve --context prod-eu --context prod-us --resources 'pods,*.apps'
  watershed serve --resources '*,secrets'
  watershed serve --kubeconfig-dir /etc/clusters
  watershed serve --in-cluster=hub --cluster-api
  watershed serve --cluster-profiles --cluster-profile-consumer watershed --hub-context hub`
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := &runner{Settings: settings.New()}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve a read replica of clusters",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Load(); err != nil {
				return err
			}
			log := cmd.ErrOrStderr()
			if terminal.Is(log) {
				o.area = terminal.NewArea(log)
				log = o.area
			}
			return o.run(cmd.Context(), newLogger(log, o.LogFormat))
		},
	}
	o.AddFlags(cmd.Flags())
	completion.Flag(cmd, "context", completion.Contexts)
	return cmd
}

// newLogger returns a logger in logfmt, or in JSON. The log lines of Kubernetes' libraries,
// most of them about credential plugins, go to the same logger.
func newLogger(w io.Writer, format string) *slog.Logger {
	logger := slog.New(slog.NewTextHandler(w, nil))
	if format == settings.LogJSON {
		logger = slog.New(slog.NewJSONHandler(w, nil))
	}
	klog.SetSlogLogger(logger)
	return logger
}

// run mirrors and serves until ctx ends, and returns after everything that it started has
// ended.
func (o *runner) run(ctx context.Context, logger *slog.Logger) error {
	if err := o.State.Open(); err != nil {
		return err
	}
	release, err := o.State.Lock()
	if err != nil {
		return err
	}
	defer release()
	listener, err := o.ListenReplica(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	if o.port, err = o.listenPeers(ctx, logger); err != nil {
		return err
	}
	defer o.port.close()
	opened, err := o.Sources.Open(logger)
	if err != nil {
		return o.Keys.Locate(err)
	}
	clusters := opened.Join(logger)
	clusters.Label(o.Labels())
	certificates, ca, hosts, err := o.Listening.Certificates(listener, &o.State, logger)
	if err != nil {
		return err
	}
	addresses := serving.Addresses(listener, hosts)
	r, err := o.openReplica(ctx, ownAddressFilter{clusters, addresses, ca, logger}, serving.IsLoopback(listener),
		logger)
	if err != nil {
		return err
	}
	defer r.close()
	front, err := serving.New(listener, r.handler, frontOptions(&o.Listening, certificates, o.PassThrough, logger))
	if err != nil {
		return err
	}
	inside, err := o.openInside(ctx, r.metrics, logger)
	if err != nil {
		return err
	}
	defer inside.close()
	changes := &reload{
		started: o.Settings, now: o.Settings, clusters: clusters, replica: r, front: front, logger: logger,
		announced: state.Server{Address: addresses[0], Home: o.Access.Home, OtherAuthority: ca == nil,
			Issuer: o.Access.HasIssuer()},
	}
	withdraw, err := changes.announce(opened)
	if err != nil {
		return err
	}
	defer withdraw()
	s := &service{[]func(context.Context) error{front.Run}, append(r.parts, changes.run), logger}
	for _, one := range inside {
		s.servers = append(s.servers, one.run)
	}
	logger.Info("serving", "url", "https://"+addresses[0], "clusters", clusters.String(), "state", o.State.Path,
		"version", build.Version())
	return s.run(ctx)
}
