// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Options tune a [Cluster]. nil and the zero value are the defaults.
type Options struct {
	// Name is what errors call the cluster. Default: host and port of the API
	// server.
	Name string
}

// Cluster is one Kubernetes cluster. All methods are safe for concurrent use.
type Cluster struct {
	name   string
	config *rest.Config // never changed
	root   *url.URL     // of the API
	client *http.Client

	catalogue catalogue
}

// FromConfig is the cluster that cfg leads to. The limits of requests per second
// and the encodings in cfg are not used. There is no request yet.
func FromConfig(cfg *rest.Config, opts *Options) (*Cluster, error) {
	if cfg == nil {
		return nil, errors.New("cluster: no configuration")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	c := &Cluster{name: o.Name, config: rest.CopyConfig(cfg), catalogue: newCatalogue()}

	// What the configuration says about one kind of API is not for a client of
	// all of them. The timeout would end every watch: send applies it.
	own := rest.CopyConfig(cfg)
	own.GroupVersion, own.APIPath, own.Timeout = nil, "", 0
	if own.UserAgent == "" {
		own.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	root, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	c.root = root
	if c.name == "" {
		c.name = root.Host
	}
	if c.client, err = rest.HTTPClientFor(own); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	return c, nil
}

// Name is what errors call the cluster.
func (c *Cluster) Name() string { return c.name }

// Config is a copy of the configuration that the cluster was made from, for
// other clients.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// CloseIdleConnections closes the connections that carry no request now. Clusters
// with equal configurations share theirs.
func (c *Cluster) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(c.client.Transport) }
