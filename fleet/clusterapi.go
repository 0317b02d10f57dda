// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// What Cluster API calls the Secret that it keeps for each of its clusters.
const (
	capiSecretType   = "cluster.x-k8s.io/secret"
	capiClusterLabel = "cluster.x-k8s.io/cluster-name"
	capiSecretSuffix = "-kubeconfig"
	capiSecretKey    = "value"
)

// ClusterAPIOptions tune [ClusterAPI]. The zero value, and nil, are the defaults.
type ClusterAPIOptions struct {
	// Namespace is where the clusters are. Default: everywhere.
	Namespace string
	// Logger is for the informer of the Secrets. Default: slog.Default().
	Logger *slog.Logger
}

// ClusterAPI is a [Directory] of the clusters that Cluster API manages from a hub:
// of the Secrets with their kubeconfigs, which are called <cluster>-kubeconfig.
// Nothing but the right to list and watch Secrets is needed, and a cluster is there
// when it can be reached: the Secret is made with the control plane, renewed with
// its certificates, and deleted with the cluster.
//
// A cluster's name in the fleet is <namespace>.<name>, since two namespaces may have
// clusters of the same name. The name of a namespace has no dot, so that no two
// clusters become one.
//
// Kubeconfigs that need commands or files are not accepted: who may write a Secret
// on the hub is not to run commands in this program, or to have files that it can
// read sent somewhere. Cluster API makes none.
type ClusterAPI struct {
	hub  *kube.Cluster
	opts ClusterAPIOptions
}

// NewClusterAPI returns the directory of the clusters that are managed from hub. A
// nil opts means the defaults.
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

// Follow tells the clusters. See [Directory].
func (c *ClusterAPI) Follow(ctx context.Context, tell func([]Entry)) error {
	if c.hub == nil {
		return errors.New("directory of Cluster API: no hub")
	}
	secrets, err := watershed.New(c.hub, &watershed.Options[*corev1.Secret]{
		Namespace:     c.opts.Namespace,
		LabelSelector: capiClusterLabel,
		FieldSelector: "type=" + capiSecretType,
		Logger:        c.opts.Logger,
	})
	if err != nil {
		return fmt.Errorf("directory of Cluster API in %s: %w", c.hub.Name(), err)
	}
	told := teller{tell: tell}
	var parsed secretEntries
	return followHub(ctx, func() {
		var entries []Entry
		for key, s := range secrets.All() {
			cluster := s.Labels[capiClusterLabel]
			// Of the same type and with the same label are its certificates, and
			// kubeconfigs that are made for people.
			if cluster == "" || s.Name != cluster+capiSecretSuffix {
				continue
			}
			e := parsed.of(s, capiSecretKey)
			e.Name = s.Namespace + "." + cluster
			if e.Err != nil {
				e.Err = fmt.Errorf("secret %s in %s: %w", key, c.hub.Name(), e.Err)
			}
			entries = append(entries, e)
		}
		parsed.done()
		told.update(entries)
	}, hubPartOf(secrets))
}
