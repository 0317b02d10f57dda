// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/internal/warning"
)

// problems finds the problems of the server itself, which belong to no cluster. They are in the
// status, in the metrics and in alerts.
type problems struct {
	fleet *fleet.Fleet
	// home is the name of the cluster that authenticates requests below /fleet, "" if there is
	// none.
	home string
	// group is this process in its replica group, nil without one.
	group *group.Replica
	// peers are the connections with other replicas, nil without any.
	peers  *peers
	logger *slog.Logger
	// homeLogged means that the log says that the home cluster is missing. Only logHome uses it.
	homeLogged bool

	mu sync.Mutex
	// rejected is the problem of the configuration file, nil if its content is in effect.
	rejected *fleet.Problem
}

// reject records that the content of the configuration file is not in effect.
func (p *problems) reject(file string, texts []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := time.Now()
	if p.rejected != nil {
		since = p.rejected.Since
	}
	message := fmt.Sprintf("%s is not in effect: %s", file, strings.Join(texts, "; "))
	p.rejected = &fleet.Problem{Reason: remedy.ConfigurationRejected, Since: since,
		Message: warning.Shorten(message, warning.MaxCause)}
}

// accept records that the content of the configuration file is in effect.
func (p *problems) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rejected = nil
}

// all returns the present problems. It is safe for concurrent use.
func (p *problems) all() (all []fleet.Problem) {
	p.mu.Lock()
	if p.rejected != nil {
		all = append(all, *p.rejected)
	}
	p.mu.Unlock()
	for _, s := range p.fleet.Sources() {
		if s.Err != nil {
			message := fmt.Sprintf("clusters of %s: %v", s.Name, s.Err)
			all = append(all, fleet.Problem{Reason: remedy.SourceUnreadable,
				Message: warning.Shorten(message, warning.MaxCause)})
		}
	}
	if p.homeMissing() {
		message := fmt.Sprintf("no cluster of the fleet has the name %s of --home, which authenticates requests "+
			"below /fleet", p.home)
		all = append(all, fleet.Problem{Reason: remedy.HomeMissing, Message: message})
	}
	if p.group != nil {
		is := p.group.Status()
		all = append(all, groupProblems(&is)...)
	}
	if p.peers != nil {
		all = append(all, p.peers.problems()...)
	}
	return all
}

// homeMissing reports whether the clusters are known, and the home cluster is not one of them.
func (p *problems) homeMissing() bool {
	if p.home == "" || !p.fleet.Known() {
		return false
	}
	_, ok := p.fleet.Member(p.home)
	return !ok
}

// homePeriod is how often logHome is called.
const homePeriod = 5 * time.Second

// run logs problems until ctx ends. Rejected configuration files and sources that cannot be read
// are logged where they are found.
func (p *problems) run(ctx context.Context) error {
	for timer.Sleep(ctx, homePeriod) == nil {
		p.logHome()
	}
	return nil
}

// logHome logs when the home cluster has begun or ceased to be missing in the fleet.
func (p *problems) logHome() {
	missing := p.homeMissing()
	switch {
	case missing == p.homeLogged:
	case missing:
		p.logger.Warn("the home cluster is not in the fleet: requests below /fleet cannot be authenticated, see "+
			"serve --home", "home", p.home)
	default:
		p.logger.Info("the home cluster is in the fleet", "home", p.home)
	}
	p.homeLogged = missing
}
