// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/budget"
	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/exposition"
	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/overload"
	"github.com/watershed-project/watershed/cmd/watershed/internal/progress"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/cmd/watershed/internal/tracing"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// runner opens and runs a server with the settings.
type runner struct {
	*settings.Settings
	// area shows the progress of the first sync below the log, nil if the log does not go to
	// a terminal.
	area *terminal.Area
	port peerPort
}

// guarded is a replica with access control.
type guarded struct {
	fleet   *fleet.Fleet
	control *access.Control
	audit   *audit.Log // nil if there is none
	handler http.Handler
	metrics http.Handler
	// parts run while the handler is used.
	parts []func(context.Context) error
	// tracing is nil if there is none.
	tracing *tracing.Tracing
	// files are nil if objects are not stored.
	files *settings.StoredFiles
	// problems finds the problems of the server itself.
	problems *problems
	// self is nil without a replica group, and peers without a port for others.
	self  *group.Replica
	peers *peers
}

// close ends what is done in the background. No requests may follow.
func (g *guarded) close() {
	g.control.Close()
	if g.tracing != nil {
		g.tracing.Close()
	}
	if g.files != nil {
		_ = g.files.Close() // everything is written
	}
}

// openReplica returns the replica of the clusters in a directory. Only on a loopback
// address, where other machines cannot connect, the owner has access.
func (o *runner) openReplica(
	ctx context.Context, d fleet.Directory, loopback bool, logger *slog.Logger,
) (*guarded, error) {
	files, err := o.Storage.Open(ctx, logger)
	if err != nil {
		return nil, err
	}
	traces, err := o.Tracing.Open(ctx, logger)
	var g *guarded
	if err == nil {
		g, err = o.openTraced(ctx, d, loopback, traces, files, logger)
	}
	if err != nil && traces != nil {
		traces.Close()
	}
	if err != nil && files != nil {
		_ = files.Close()
	}
	return g, err
}

// openTraced is openReplica with a tracing and files, nil if there are none.
func (o *runner) openTraced(
	ctx context.Context, d fleet.Directory, loopback bool, traces *tracing.Tracing, files *settings.StoredFiles,
	logger *slog.Logger,
) (*guarded, error) {
	f, self, others, err := o.openFleet(d, loopback, traces, files, logger)
	if err != nil {
		return nil, err
	}
	owner, err := o.ownerToken(loopback)
	if err != nil {
		return nil, err
	}
	log, err := o.Audit.Open(logger)
	if err != nil {
		return nil, err
	}
	admission := &admission{fleet: f, limiter: overload.New(nil)}
	control, err := o.Access.Open(ctx, f, access.Options{Owner: owner, Admit: admission.admit,
		PassThrough: o.PassThrough, Logger: logger})
	if err != nil {
		return nil, err
	}
	page := new(exposition.Page)
	exchange, copies := others.parts()
	troubles := &problems{fleet: f, home: o.Access.Home, group: self, peers: others, logger: logger}
	opts := &replica.Options{
		Version: build.Version(), Logger: logger, Admit: control.Admit, Authorize: control.Authorize,
		ProgramResources: append(control.Own(), verification.NewService(f, copies).Own()),
		PassThrough:      o.PassThrough, Problems: troubles.all, Peers: others.options(),
		Pages: map[string]http.Handler{access.MetricsPath: page},
	}
	if self != nil {
		opts.FleetWarning, opts.Membership = self.Warning, func() *replica.Membership {
			is := self.Status()
			return &is.Membership
		}
	}
	if log != nil {
		opts.Audit = log.Audit
	}
	if traces != nil {
		opts.Trace, opts.DeliveryTrace = traces.Request, traces
	}
	server, err := replica.New(f, opts)
	if err != nil {
		control.Close()
		return nil, err
	}
	memory := o.openBudget(f, server, logger)
	if err := page.Open(exposition.Sources{Fleet: f, Replica: server, Access: control, Limiter: admission.limiter,
		Audit: log, Budget: memory, Storage: files.Files(), Tracing: traces, Problems: troubles.all,
		Group: self, Peers: exchange, Copies: copies, Version: build.Version(), Logger: logger}); err != nil {
		control.Close()
		return nil, err
	}
	g := &guarded{
		fleet: f, control: control, audit: log, handler: control.Handler(server), metrics: page,
		tracing: traces, files: files, problems: troubles, self: self, peers: others,
	}
	g.parts = o.parts(g, server, memory)
	return g, nil
}

// openFleet returns the fleet, and its connections with other replicas: this process in their group, and
// the port for them, nil if there are none.
func (o *runner) openFleet(
	d fleet.Directory, loopback bool, traces *tracing.Tracing, files *settings.StoredFiles, logger *slog.Logger,
) (f *fleet.Fleet, self *group.Replica, others *peers, err error) {
	opts := o.FleetOptions(logger)
	opts.Disk = files.Files()
	// It runs after the fleet was made.
	self = o.Group.Open(func(name string) (*fleet.Member, bool) { return f.Member(name) }, o.port.address,
		o.port.keyHash, logger)
	if self != nil {
		opts.Term = self.Term
	}
	opts.LastState = loopback // only the owner may read the last state
	// An interface with a nil pointer would not be nil.
	if traces != nil {
		opts.Trace = traces
	}
	if f, err = fleet.New(d, opts); err != nil {
		return nil, nil, nil, err
	}
	others, err = newPeers(&o.port, self, f, logger)
	return f, self, others, err
}

// ownerToken returns the token of the owner, empty if the server is reached from other machines.
func (o *runner) ownerToken(loopback bool) (string, error) {
	if !loopback {
		return "", nil
	}
	return o.State.OpenOwner(access.NewOwnerToken)
}

// parts returns what has to run while the handler of the replica is used.
func (o *runner) parts(g *guarded, server *replica.Server, memory *budget.Budget) []func(context.Context) error {
	parts := []func(context.Context) error{g.fleet.Run, server.Run, g.control.Run, g.problems.run}
	if g.files != nil {
		parts[0] = recorded(g.fleet.Run, g.files.Run)
	}
	if g.audit != nil {
		parts[1] = recorded(server.Run, g.audit.Run)
	}
	if memory != nil {
		parts = append(parts, memory.Run)
	}
	if g.tracing != nil {
		parts = append(parts, g.tracing.Run)
	}
	if g.self != nil {
		parts = append(parts, g.self.Run)
	}
	if g.peers != nil {
		g.peers.server = server
		parts = append(parts, g.peers.exchange.Run, g.peers.copies.Run)
	}
	if o.area != nil {
		parts = append(parts, func(ctx context.Context) error { return progress.Run(ctx, g.fleet, o.area) })
	}
	return parts
}

// openBudget returns the memory budget of the process, nil if there is no limit.
func (o *runner) openBudget(f *fleet.Fleet, server *replica.Server, logger *slog.Logger) *budget.Budget {
	limit, from := budget.Limit(o.MemoryLimit << 20)
	if limit == 0 {
		return nil
	}
	logger.Info("memory limit", "limit", fmt.Sprintf("%d MiB", limit>>20), "from", from)
	return budget.New(limit, logger, func(m fleet.Memory) {
		share := 1.0
		if m.Pressure >= fleet.PressureCaches {
			share = 0.125
		}
		server.SetCaches(share)
		f.SetMemory(m)
	})
}
