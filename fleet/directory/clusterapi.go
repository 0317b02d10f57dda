// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// These identify the Secrets with kubeconfigs that Cluster API creates.
const (
	capiSecretType   = "cluster.x-k8s.io/secret"
	capiClusterLabel = "cluster.x-k8s.io/cluster-name"
	capiSecretSuffix = "-kubeconfig"
	capiSecretKey    = "value"
)

// ClusterAPIOptions tune [ClusterAPI]. The zero value, and nil, are the defaults.
type ClusterAPIOptions struct {
	// Namespace limits the directory to the clusters in one namespace of the hub.
	// Default: all namespaces.
	Namespace string
	// Logger is used by the informer of the Secrets. Default: slog.Default().
	Logger *slog.Logger
}

// ClusterAPI is a [fleet.Directory] of the clusters that Cluster API manages from a hub.
// It reads the Secrets with their kubeconfigs, which are named <cluster>-kubeconfig, and
// needs permission only to list and watch Secrets. Cluster API creates the Secret with
// the control plane, updates it with the certificates, and deletes it with the cluster.
//
// The name of a cluster in the fleet is <namespace>.<name>, because two namespaces may
// have clusters of the same name. Names of namespaces have no dot, so different clusters
// have different names.
//
// Kubeconfigs that need commands or files are rejected: a user with permission to write a
// Secret on the hub must not be able to run commands in this program, or to send files
// that it can read to a server. Cluster API does not create such kubeconfigs.
type ClusterAPI struct {
	hub   *kube.Cluster
	opts  ClusterAPIOptions
	state hubState
}

// NewClusterAPI returns the directory of the clusters that Cluster API manages from
// hub. A nil opts means the defaults.
func NewClusterAPI(hub *kube.Cluster, opts *ClusterAPIOptions) *ClusterAPI {
	c := &ClusterAPI{hub: hub}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	return c
}

// String returns a short name of the directory for log lines and errors.
func (c *ClusterAPI) String() string { return "Cluster API on " + hubName(c.hub) }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (c *ClusterAPI) Err() error { return c.state.Err() }

// Follow reports the clusters. See [fleet.Directory].
func (c *ClusterAPI) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	if c.hub == nil {
		return errors.New("clusters of Cluster API: no hub")
	}
	secrets, err := watershed.New(c.hub, &watershed.Options[*corev1.Secret]{
		Namespace:     c.opts.Namespace,
		LabelSelector: capiClusterLabel,
		FieldSelector: "type=" + capiSecretType,
		Logger:        c.opts.Logger,
	})
	if err != nil {
		return fmt.Errorf("clusters of Cluster API on %s: %w", c.hub.Name(), err)
	}
	n := notifier{notify: notify}
	var parsed secretEntries
	return c.state.follow(ctx, c.hub, func() {
		var entries []fleet.Entry
		for key, s := range secrets.All() {
			cluster := s.Labels[capiClusterLabel]
			// Secrets with certificates, and with kubeconfigs for users, have the same
			// type and label.
			if cluster == "" || s.Name != cluster+capiSecretSuffix {
				continue
			}
			e := parsed.entry(s, capiSecretKey)
			e.Name, e.Labels = s.Namespace+"."+cluster, s.Labels
			if e.Err != nil {
				e.Err = fmt.Errorf("secret %s in %s: %w", key, c.hub.Name(), e.Err)
			}
			entries = append(entries, e)
		}
		parsed.done()
		n.update(entries)
	}, hubPartOf(secrets))
}
