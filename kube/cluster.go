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

// Options configures a [Cluster]. A nil pointer and the zero value mean the defaults.
type Options struct {
	// Name is the name of the cluster in errors. Default: host and port of the API
	// server.
	Name string
}

// Cluster is one Kubernetes cluster. All methods are safe for concurrent use.
type Cluster struct {
	name   string
	config *rest.Config // never modified
	root   *url.URL     // of the API
	client *http.Client

	catalogue catalogue
}

// FromConfig returns the cluster for cfg. It ignores the request rate limits and the
// encodings in cfg. It does not send a request.
func FromConfig(cfg *rest.Config, opts *Options) (*Cluster, error) {
	if cfg == nil {
		return nil, errors.New("cluster: no configuration")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	c := &Cluster{name: o.Name, config: rest.CopyConfig(cfg), catalogue: newCatalogue()}

	// Settings for one API group do not apply to a client of all groups. The timeout
	// would end every watch, so send applies it.
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

// Name returns the name of the cluster in errors.
func (c *Cluster) Name() string { return c.name }

// Config returns a copy of the configuration that the cluster was made from, for other
// clients.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// CloseIdleConnections closes the connections that do not carry a request. Clusters with
// equal configurations share their connections.
func (c *Cluster) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(c.client.Transport) }
