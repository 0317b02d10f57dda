// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package exposition

import (
	"log/slog"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/budget"
	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/overload"
	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/cmd/watershed/internal/tracing"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// Sources are the parts of the program that have metrics.
type Sources struct {
	Fleet   *fleet.Fleet
	Replica *replica.Server
	Access  *access.Control
	Limiter *overload.Limiter
	// Audit is nil if there is no audit log.
	Audit *audit.Log
	// Budget is nil if the memory of the process has no limit.
	Budget *budget.Budget
	// Storage is nil if objects are not stored.
	Storage *disk.Directory
	// Tracing is nil if there are no traces.
	Tracing *tracing.Tracing
	// Peers is the port for other replicas, and Copies compares copies with theirs. Both are nil if there is
	// no port.
	Peers  *peer.Exchange
	Copies *verification.Replicas
	// Problems returns the problems of the server itself.
	Problems func() []fleet.Problem
	// Group is this process in its replica group, nil without one.
	Group *group.Replica
	// Version is that of the program.
	Version string
	// Logger receives errors of scrapes. Default: slog.Default().
	Logger *slog.Logger
}
