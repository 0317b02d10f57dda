// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// InClusterOptions tune [InCluster]. The zero value, and nil, are the defaults.
type InClusterOptions struct {
	// Interval is how often the files of the service account are looked at. Default
	// 2 seconds.
	Interval time.Duration
	// Logger is told when there is no telling how the cluster is reached. Default:
	// slog.Default().
	Logger *slog.Logger
}

// InCluster is a [Directory] of one cluster: the one that the program runs in, as
// the service account of its pod. It follows the certificate authority of the
// cluster; the token is left to client-go, which reads it every minute.
type InCluster struct {
	name string
	opts InClusterOptions
	load func() (*rest.Config, error) // for tests
}

// NewInCluster returns the directory of the cluster that the program runs in, under
// a name. A nil opts means the defaults.
func NewInCluster(name string, opts *InClusterOptions) *InCluster {
	c := &InCluster{name: name, load: rest.InClusterConfig}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	return c
}

// Follow tells the cluster. It is an error not to run in one, since that does not
// change. See [Directory].
func (c *InCluster) Follow(ctx context.Context, tell func([]Entry)) error {
	if err := checkName(c.name); err != nil {
		return err
	}
	told := teller{tell: tell}
	var trouble complaint
	var files tracked
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	poll(ctx, c.opts.Interval, func() bool {
		read, soon := files.due()
		if !read {
			return soon
		}
		r := newReading()
		cfg, err := c.config(r)
		if errors.Is(err, rest.ErrNotInCluster) {
			failed = fmt.Errorf("cluster %s: %w", c.name, err)
			cancel()
			return false
		}
		if trouble.isNew(err) {
			c.opts.Logger.Warn("cluster that the program runs in cannot be reached", "cluster", c.name, "err", err)
		}
		if err != nil {
			return false // and reads again, whatever it was
		}
		files.done(r)
		told.update([]Entry{entryOf(c.name, cfg, nil)})
		return false
	})
	return failed
}

func (c *InCluster) config(r *reading) (*rest.Config, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if cfg.CAFile == "" {
		// client-go goes on with the authorities of the system, which know nothing
		// of a cluster.
		return nil, errors.New("service account: there is no certificate authority")
	}
	if err := r.inline(&cfg.CAFile, &cfg.CAData); err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	return cfg, nil
}
