// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// InClusterOptions tune [InCluster]. The zero value, and nil, are the defaults.
type InClusterOptions struct {
	// Logger receives a line when the files of the service account cannot be read.
	// Default: slog.Default().
	Logger *slog.Logger
}

// InCluster is a [fleet.Directory] of one cluster: the one that the program runs in. It
// uses the service account of the program's pod. The certificate authority is polled
// every 2 seconds. The token is left to client-go, which reads it every minute.
type InCluster struct {
	name   string
	poller poller
	load   func() (*rest.Config, error) // replaced by tests
}

// NewInCluster returns the directory of the cluster that the program runs in. Name is
// the cluster's name in the fleet. A nil opts means the defaults.
func NewInCluster(name string, opts *InClusterOptions) *InCluster {
	c := &InCluster{name: name, load: rest.InClusterConfig}
	var o InClusterOptions
	if opts != nil {
		o = *opts
	}
	c.poller = newPoller(o.Logger, c.String())
	return c
}

// String returns a short name of the directory for log lines and errors.
func (c *InCluster) String() string { return "in-cluster " + c.name }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (c *InCluster) Err() error { return c.poller.last.Err() }

// Follow reports the cluster. It returns [rest.ErrNotInCluster] if the program does not
// run in a pod. See [fleet.Directory].
func (c *InCluster) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	if err := fleet.ValidateName(c.name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	poller := c.poller
	poller.follow(ctx, func(r *fileStates) ([]fleet.Entry, error) {
		cfg, err := c.config(r)
		if errors.Is(err, rest.ErrNotInCluster) {
			failed = fmt.Errorf("cluster %s: %w", c.name, err)
			cancel()
		}
		if err != nil {
			r.retry = true // the error may concern files that were not recorded
			return nil, err
		}
		return []fleet.Entry{newEntry(c.name, cfg, nil)}, nil
	}, notify)
	return failed
}

// config returns the configuration of the service account.
func (c *InCluster) config(r *fileStates) (*rest.Config, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if cfg.CAFile == "" {
		// Without it client-go would use the authorities of the system, which have not
		// issued the certificate of a cluster.
		return nil, errors.New("service account: no certificate authority")
	}
	if err := r.inline(&cfg.CAFile, &cfg.CAData); err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	return cfg, nil
}
