// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/fleet"
)

// ownAddressFilter is a directory without the clusters that are this server itself: a
// kubeconfig that lists this replica must not make it mirror itself. The server is
// recognized by its address and by its certificate authority, which stays the same when
// it listens elsewhere.
type ownAddressFilter struct {
	from fleet.Sources
	// addresses are those at which the server can be reached, with its port.
	addresses []string
	// authority is nil if the server's certificate has another one.
	authority *serving.Authority
	logger    *slog.Logger
}

var _ fleet.Sources = ownAddressFilter{}

// Follow reports the clusters of the directory that are not this server. It logs a line
// when none is left.
func (d ownAddressFilter) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	logged := map[string]bool{}
	return d.from.Follow(ctx, func(entries []fleet.Entry) {
		entries = slices.DeleteFunc(entries, func(e fleet.Entry) bool {
			if e.Config == nil || !d.isServer(e.Config) {
				return false
			}
			if !logged[e.Name] {
				logged[e.Name] = true
				d.logger.Info("cluster left out: it is this server", "cluster", e.Name)
			}
			return true
		})
		if len(entries) == 0 {
			d.logger.Warn("no clusters to mirror: the sources are empty")
		}
		notify(entries)
	})
}

// Sources returns the states of the directory's sources.
func (d ownAddressFilter) Sources() []fleet.SourceState { return d.from.Sources() }

// isServer reports whether a client with the configuration would connect to this server.
func (d ownAddressFilter) isServer(cfg *rest.Config) bool {
	if d.authority != nil && d.authority.IsIn(cfg.CAData) {
		return true
	}
	return slices.ContainsFunc(d.addresses, func(address string) bool {
		return strings.HasPrefix(cfg.Host+"/", "https://"+address+"/")
	})
}
