// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/replica"
)

const (
	// comparisons is how many comparisons run at the same time.
	comparisons = 8
	// persistence is how long a disagreement has to last before the copy is not used any more.
	// The copy and the cluster's authorizer follow a change at different times.
	persistence = 5 * time.Second
	// recheck is how often a disagreement is examined.
	recheck = time.Second
	// inconclusive is after which time a disagreement is given up if reviews fail.
	inconclusive = 30 * time.Second
	// pause is how long no comparison starts after a review that failed.
	pause = 5 * time.Second
	// mastersGroup may do everything, before RBAC is evaluated.
	mastersGroup = "system:masters"
	// rbacReason is how the reasons of kube-apiserver's RBAC authorizer begin.
	rbacReason = "RBAC:"
)

// LocalOptions configures a [Local]. A nil pointer and zero values mean the defaults.
type LocalOptions struct {
	// Cluster is the name of the cluster in the log.
	Cluster string
	// Fresh reports whether the policy follows the cluster: all four kinds have synced, and
	// the cluster has sent something for each within 90 s. It is called for every decision.
	// Default: always.
	Fresh func() bool
	// Logger receives a line when the cluster is not decided locally any more. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (o *LocalOptions) withDefaults() LocalOptions {
	var d LocalOptions
	if o != nil {
		d = *o
	}
	if d.Fresh == nil {
		d.Fresh = func() bool { return true }
	}
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d
}

// LocalStats counts the work of a [Local] since it was made.
type LocalStats struct {
	// Local counts decisions that were made here, Reviewed those of the cluster. Beyond counts
	// those of the latter that allowed what RBAC denies.
	Local, Reviewed, Beyond uint64
	// Compared counts local decisions that were compared with the cluster's, Skipped those
	// that were not because too many comparisons were running.
	Compared, Skipped uint64
	// Disagreements counts comparisons in which the cluster denied what was allowed here or
	// another authorizer allowed it, Transient those of them that ended within 5 s.
	Disagreements, Transient uint64
	// Proven means that the probe has succeeded. Fallback is the reason why the cluster decides
	// everything, or "".
	Proven   bool
	Fallback string
}

// trust is whether the copy may decide.
type trust int32

const (
	unproven trust = iota // the probe has not succeeded yet
	trusted
	distrusted
)

type (
	// localFunc returns the decision of the copy.
	localFunc func(*authenticationv1.UserInfo, *replica.Attributes) (bool, string)
	// reviewFunc returns the decision of the cluster.
	reviewFunc func(context.Context, *authenticationv1.UserInfo, replica.Attributes) (Decision, error)
)

// comparison compares decisions of the copy with those of the cluster, in the background.
type comparison struct {
	opts   *LocalOptions
	local  localFunc
	review reviewFunc

	life context.Context // ends with close
	end  context.CancelFunc
	runs sync.WaitGroup

	state atomic.Int32 // a trust, written with mu held

	mu      sync.Mutex
	running int
	probing bool
	closed  bool
	paused  time.Time // no comparison starts before
	counts  LocalStats
}

func newComparison(opts *LocalOptions, local localFunc, review reviewFunc) *comparison {
	c := &comparison{opts: opts, local: local, review: review}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

func (c *comparison) trust() trust { return trust(c.state.Load()) }

func (c *comparison) stats() LocalStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// start compares the decision about a request that the copy allows. It returns false if too
// many comparisons are running, or if a review failed within the last seconds. It calls failed
// if the cluster does not decide.
func (c *comparison) start(user *authenticationv1.UserInfo, a *replica.Attributes, failed func()) bool {
	request := *a
	c.mu.Lock()
	defer c.mu.Unlock()
	started := c.backgroundLocked(func() {
		if c.settle(user, &request) == unknown {
			failed()
		}
	})
	if !started {
		c.counts.Skipped++
	}
	return started
}

// backgroundLocked runs f, unless too many comparisons are running or paused.
func (c *comparison) backgroundLocked(f func()) bool {
	if c.closed || c.running >= comparisons || time.Now().Before(c.paused) {
		return false
	}
	c.running++
	c.runs.Go(func() {
		defer c.count(func(*LocalStats) { c.running-- })
		f()
	})
	return true
}

// ask returns the decision of the cluster. A review that fails pauses the comparisons, so that
// they do not burden a cluster in trouble.
func (c *comparison) ask(user *authenticationv1.UserInfo, a *replica.Attributes) (Decision, bool) {
	d, err := c.review(c.life, user, *a)
	if err != nil {
		c.count(func(*LocalStats) { c.paused = time.Now().Add(pause) })
		return Decision{}, false
	}
	c.count(func(s *LocalStats) { s.Compared++ })
	return d, true
}

// outcome is the result of a comparison.
type outcome int

const (
	unknown outcome = iota // the cluster has not decided
	agreed
	disagreed
)

// settle compares the decisions about one request until they agree, or until they have
// disagreed for so long that the copy is not used any more.
func (c *comparison) settle(user *authenticationv1.UserInfo, a *replica.Attributes) outcome {
	if result, _ := c.compare(user, a); result != disagreed {
		return result
	}
	c.count(func(s *LocalStats) { s.Disagreements++ })
	start := time.Now()
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-c.life.Done():
			return unknown
		case <-tick.C:
		}
		result, problem := c.compare(user, a)
		if result == agreed {
			c.count(func(s *LocalStats) { s.Transient++ })
			return agreed
		}
		switch age := time.Since(start); {
		case result == disagreed && age >= persistence:
			c.fallBack(problem, user, a)
			return disagreed
		case age >= inconclusive:
			return unknown
		}
	}
}

// compare compares the decisions once, and says how they differ. A request that the copy
// denies is decided by the cluster anyway, so only what the copy allows can disagree.
func (c *comparison) compare(user *authenticationv1.UserInfo, a *replica.Attributes) (outcome, string) {
	d, ok := c.ask(user, a)
	if !ok || !c.opts.Fresh() {
		return unknown, "" // a copy that does not follow the cluster is not used
	}
	// The copy decides after the review: if the right was lost meanwhile, it agrees.
	allowed, _ := c.local(user, a)
	switch {
	case !allowed:
		return agreed, ""
	case !d.Allowed:
		return disagreed, "the cluster denies what its RBAC objects allow"
	case !slices.Contains(user.Groups, mastersGroup) && !strings.HasPrefix(d.Reason, rbacReason):
		return disagreed, "another authorizer decides before RBAC"
	}
	return agreed, ""
}

// probe starts the probe unless it is running. [Local] describes it.
func (c *comparison) probe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing || c.counts.Proven || c.counts.Fallback != "" {
		return
	}
	c.probing = c.backgroundLocked(func() {
		proven := c.proves()
		c.count(func(s *LocalStats) {
			c.probing = false
			if proven && s.Fallback == "" && !c.closed {
				s.Proven = true
				c.state.Store(int32(trusted))
			}
		})
	})
}

// proves reports whether RBAC seems to be the authorizer that decides.
func (c *comparison) proves() bool {
	user := &authenticationv1.UserInfo{
		Username: "watershed:probe:" + rand.Text(),
		Groups:   []string{"system:authenticated"},
	}
	absent := &replica.Attributes{
		Verb: "get", IsResource: true, Group: "probe.watershed.dev", Version: "v1",
		Resource: strings.ToLower(rand.Text()), Name: "probe",
	}
	if !c.denies(user, absent) {
		return false
	}
	for _, path := range []string{"/version", "/api", "/healthz"} {
		if c.settle(user, &replica.Attributes{Verb: "get", Path: path}) != agreed {
			return false
		}
	}
	return true
}

// denies reports whether the cluster denies a request of the probe that the copy denies. If it
// allows it for as long as a disagreement may last, the copy is not used.
func (c *comparison) denies(user *authenticationv1.UserInfo, a *replica.Attributes) bool {
	for start := time.Now(); ; {
		d, ok := c.ask(user, a)
		if !ok {
			return false
		}
		if !d.Allowed {
			return true
		}
		if allowed, _ := c.local(user, a); allowed {
			// RBAC objects allow everything to all users.
			return c.settle(user, a) == agreed
		}
		if time.Since(start) >= persistence {
			c.fallBack("the cluster allows an unknown user what its RBAC objects do not allow", user, a)
			return false
		}
		select {
		case <-c.life.Done():
			return false
		case <-time.After(recheck):
		}
	}
}

// fallBack ends the use of the copy.
func (c *comparison) fallBack(problem string, user *authenticationv1.UserInfo, a *replica.Attributes) {
	c.mu.Lock()
	first := c.counts.Fallback == ""
	if first {
		c.counts.Fallback = problem
		c.state.Store(int32(distrusted))
	}
	c.mu.Unlock()
	if first {
		c.opts.Logger.Error("access to the cluster is not decided locally any more, every request is reviewed by the "+
			"cluster",
			"cluster", c.opts.Cluster, "reason", problem, "user", user.Username, "verb", a.Verb,
			"group", a.Group, "resource", a.Resource, "subresource", a.Subresource, "namespace", a.Namespace, "name",
			a.Name, "path", a.Path)
	}
}

// count changes the counters.
func (c *comparison) count(f func(*LocalStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

// close ends the comparisons and waits for them.
func (c *comparison) close() {
	c.mu.Lock()
	c.closed = true
	c.state.Store(int32(distrusted))
	c.mu.Unlock()
	c.end()
	c.runs.Wait()
}
