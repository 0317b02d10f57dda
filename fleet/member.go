// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/laststate"
	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Member is one cluster of a fleet. All methods are safe for concurrent use.
type Member struct {
	server   *upstream.Server
	mirrors  *mirror.Set
	logger   *slog.Logger
	settings *settings
	// changed is sent to when the state of the member may have changed, except when a resource has
	// synced: its informer has a channel for that.
	changed  timer.Broadcast
	verifier *verify.Verifier
	names    atomic.Pointer[memberNames]
	prober   health.Prober
	// end ends the run.
	end context.CancelFunc
	// interrupted and notes have locks of their own.
	interrupted health.Interruptions
	notes       *laststate.File

	// mu guards the fields below, and changes of the connection.
	mu     sync.Mutex
	used   Entry // the entry that the connection was made from
	access string
	host   string
	// labels are those of the directory's current entry. They are replaced, not modified.
	labels map[string]string
	// unlisted is the directory's current error: it has no usable configuration for the
	// cluster. A connection that was made before stays in use.
	unlisted error
	err      error     // of the last discovery
	since    time.Time // when the member began
	gone     time.Time
	// before is the member of the same name that this one replaces when it has synced. It
	// is nil if there was none, or it has been replaced.
	before *Member
	// discovered is when discovery first succeeded.
	discovered time.Time
	// connection is the digest of the configuration in use, see upstream.Connection. recallable means
	// that the last state may be used if the cluster does not answer.
	connection string
	recallable bool
	// unstored is why the objects are not stored although there are files for them.
	unstored error
	// missing is the error about the parts that the last discovery could not read.
	missing error
	// shadowed is Entry.Shadowed of the latest entry.
	shadowed []string
	// predecessor is the identity of the cluster that had the name before, zero if none had.
	predecessor Identity
}

// Name returns the cluster's name in the fleet.
func (m *Member) Name() string { return m.server.Name() }

// Cluster returns the connection to the cluster, or nil if its directory has not provided
// a configuration yet. The connection changes when the credentials change.
func (m *Member) Cluster() *kube.Cluster { return m.server.Cluster() }

// Identity returns the identity of the member's cluster, as far as it is known.
func (m *Member) Identity() Identity { return m.server.Known.Identity() }

// Aliases returns the other names that lead to the cluster, sorted. See [Fleet.Member].
func (m *Member) Aliases() []string {
	return slices.Clone(m.names.Load().aliases)
}

// Labels returns the labels of the cluster in its directory. The caller must not modify them.
// They can change while the fleet runs.
func (m *Member) Labels() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.labels
}

// Scope returns the part of the cluster that is mirrored.
func (m *Member) Scope() Scope { return m.settings.scopeOf(m.entry()) }

// Feed returns the feed of a resource, if it is mirrored and the fleet keeps a history: the
// resource by the versions of its server. It is for package replica, whose clients use these
// versions. Other programs read a [View].
func (m *Member) Feed(r schema.GroupResource) (*history.Feed, bool) {
	feed := m.mirrors.Feed(r)
	return feed, feed != nil
}

// Between reads the changes of a part of a mirrored resource after a version, up to and including
// another one, from the API server, with objects as the copy keeps them. It is for package replica,
// like [Member.Feed]. It waits for the server, at most until ctx ends, and returns an error if the
// server does not have the changes, or if they are more than 1,000.
func (m *Member) Between(
	ctx context.Context, r schema.GroupResource, part Part, after, until uint64,
) ([]reflector.Event[*wire.Object], error) {
	all, err := m.mirrors.Between(ctx, r, part, after, until)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.Name(), err)
	}
	return all, nil
}

// Part is a part of the objects of a resource, in the syntax of requests. The zero value is all of
// them.
type Part = upstream.Part

// Served returns the resources that have a feed, in the order of the server's last
// discovery and as described there.
func (m *Member) Served() []kube.Resource { return m.mirrors.Served() }

// Versions returns all group versions of the last discovery, in its order, whether they
// are mirrored or not.
func (m *Member) Versions() []schema.GroupVersion {
	var all []schema.GroupVersion
	seen := map[schema.GroupVersion]bool{} // a cluster can have thousands
	for _, r := range m.mirrors.Listed() {
		if gv := r.GroupVersion(); !seen[gv] {
			seen[gv] = true
			all = append(all, gv)
		}
	}
	return all
}

// Lists reports whether the last discovery of the cluster has a resource, whether it can be
// mirrored or not. With the name of a subresource, such as "log" of pods, it reports whether
// the resource has that.
func (m *Member) Lists(r schema.GroupVersionResource, subresource string) bool {
	return slices.ContainsFunc(m.mirrors.Listed(), func(listed kube.Resource) bool {
		has := func(s kube.Subresource) bool { return s.Name == subresource }
		return listed.GroupVersionResource == r && (subresource == "" || slices.ContainsFunc(listed.Subresources, has))
	})
}

// Unmirrored returns the resources that the cluster serves, that could be mirrored and that
// [Options] leave out, each in the server's preferred version and in its order.
func (m *Member) Unmirrored() []kube.Resource {
	var all []kube.Resource
	for _, r := range m.mirrors.Listed() {
		if r.Preferred && selection.Watchable(r) && !m.settings.selection().Has(r.GroupResource()) {
			all = append(all, r)
		}
	}
	return all
}

// Excludes reports whether the cluster serves a resource that its scope leaves out.
func (m *Member) Excludes(r schema.GroupVersionResource) bool {
	scope := m.Scope()
	return slices.ContainsFunc(m.mirrors.Listed(), func(served kube.Resource) bool {
		return served.GroupVersionResource == r && !selection.Includes(scope, served)
	})
}

// use switches to an entry of the directory, or records its error.
func (m *Member) use(e Entry) {
	cluster, err := (*kube.Cluster)(nil), e.Err
	if err == nil {
		cluster, err = kube.FromConfig(e.Config, &kube.Options{
			Name: m.Name(), Traffic: &m.server.Traffic, Wrap: m.settings.wrap(m.Name()),
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.changed.Send()
	m.unlisted = nil
	if e.Err == nil {
		m.labels = e.Labels // an entry that cannot be read has none
	}
	if err != nil {
		m.unlisted = fmt.Errorf("%w: %w", health.ErrUnlisted, err)
		return
	}
	old := m.server.Connect(cluster)
	m.used, m.access, m.host = e, e.Access, e.Config.Host
	m.prober.Reset()
	m.server.Known.Reach(e.Config)
	if m.settings.keepsLast() {
		m.connectLocked(e.Config)
	}
	if err := m.mirrors.Use(cluster); err != nil {
		m.err = err
	}
	if why := cluster.Unverified(); why != "" && (old == nil || old.Unverified() == "") {
		m.logger.Warn("the API server is not authenticated: whoever can redirect connections receives the credentials",
			"cause", why)
	}
	if old != nil {
		m.logger.Info("credentials changed")
	}
	m.server.RequestDiscovery()
}

// connectLocked records the configuration that is used from now on. A last state in use was stored
// over the previous connection, so it is dropped if the connection differs.
func (m *Member) connectLocked(cfg *rest.Config) {
	was := m.connection
	m.connection, m.recallable = upstream.Connection(cfg), m.predecessor == (Identity{})
	if m.connection != was && m.dropLastLocked() {
		m.logger.Warn("the last state of the cluster is not used any more: its configuration has changed")
	}
}

// relisted records that the directory again lists the entry that is in use, perhaps with
// other labels.
func (m *Member) relisted(e Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlisted = nil
	m.labels = e.Labels
	m.changed.Send()
}

// shadow records the sources whose clusters of the member's name are left out.
func (m *Member) shadow(sources []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shadowed = sources
}

// address returns the access method and the host of the cluster, both "" if the directory has not
// reported them.
func (m *Member) address() (access, host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.access, m.host
}

// entry returns the entry that is in use.
func (m *Member) entry() Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// dropLastLocked drops the last state of the cluster. It returns false if it is not used.
func (m *Member) dropLastLocked() bool {
	if m.server.Known.Assume("") == "" {
		return false
	}
	m.mirrors.Drop()
	return true
}
