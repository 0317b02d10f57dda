// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package journal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/reflector"
)

// linesAtOnce is how many resources of a cluster that begin to fail at the same time are
// logged with a line each. More of them share one line. The same holds when they recover.
const linesAtOnce = 5

// memberLog records what a journal has logged about one member, so that it logs only
// changes.
type memberLog struct {
	member  Member
	logger  *slog.Logger
	cadence Cadence
	// level is that of the line at the end of the first sync.
	level slog.Level
	// live is set when the end of the first sync was logged.
	live bool
	// down is the message that was logged because nothing of the cluster can be read, or
	// "" if something can. downSince is when that began. answered is when the cluster was
	// first seen to respond again, and zero before that.
	down      string
	downSince time.Time
	answered  time.Time
	// failing is set if something failed at the last examination, logged or not.
	failing bool
	// failures are those of parts of a cluster that responds, by resource. The keys
	// discovery and directory are not resources.
	failures map[string]*failure
	// dropped and restores are the reflectors' counters when they were last logged.
	dropped  map[string]uint64
	restores uint64
}

// failure is a failure of a part of a cluster.
type failure struct {
	since  time.Time
	err    error
	logged bool
}

// These keys of failures cannot be resources.
const (
	discovery = "/discovery"
	directory = "/directory"
)

// The messages that are logged when nothing of a cluster can be read.
const (
	unreachable   = "cluster unreachable"
	accessRefused = "cluster refuses access"
)

func newMemberLog(m Member, c Cadence) *memberLog {
	return &memberLog{
		member: m, logger: m.Logger(), cadence: c, failures: map[string]*failure{}, dropped: map[string]uint64{},
	}
}

// settled reports whether the member need not be examined until it is disturbed.
func (p *memberLog) settled() bool { return p.live && p.down == "" && !p.failing }

// update logs the differences between the member and what was logged before.
func (p *memberLog) update(now time.Time, x Examination) {
	if x.State == health.Gone {
		return
	}
	p.failing = len(x.Failing) > 0 || x.Discovery != nil || x.Unlisted != nil
	p.counters(x.All)
	p.member.Observe(now, x.All)
	if message, since := p.unreadable(now, x); message != "" {
		p.fail(message, since, x)
		return // its resources fail for the same reason
	}
	if p.down != "" && !p.recovered(now, x) {
		return
	}
	switch {
	case !p.live && (x.State == health.Live || x.State == health.Stale):
		p.live = true
		p.readable(true, now.Sub(x.Joined), x)
	case p.live && p.down != "":
		p.readable(false, now.Sub(p.downSince), x)
	}
	p.down = ""
	if p.live {
		p.parts(now, x)
	}
}

// readable logs that a cluster can be read, for the first time or again. If some resources cannot
// be read, it is not live, and the line is a warning.
func (p *memberLog) readable(first bool, after time.Duration, x Examination) {
	counts := []any{"resources", x.Resources, "objects", x.Objects}
	if n := len(x.Failing); n > 0 {
		counts = append(counts, "failing", n)
	}
	counts = append(counts, "after", rounded(after))
	switch {
	case len(x.Failing) > 0:
		p.logger.Warn("cluster answers, but not all of its resources can be read", counts...)
	case first:
		p.logger.Log(context.Background(), p.level, "cluster live", counts...)
	default:
		p.logger.Info("cluster live again", counts...)
	}
}

// unreadable returns the message for a cluster of which nothing can be read, and since
// when. The message is "" if something can be read.
func (p *memberLog) unreadable(now time.Time, x Examination) (message string, since time.Time) {
	switch {
	case x.State == health.Connecting && x.Err != nil:
		since = x.Joined
	case x.Resources == 0 || len(x.Failing) < x.Resources:
		return "", time.Time{}
	default:
		since = now
		for _, r := range x.Failing {
			if at := health.FailingSince(&r); at.Before(since) {
				since = at
			}
		}
		if p.down == "" && now.Sub(since) < p.cadence.Failure {
			return "", time.Time{}
		}
	}
	if apierrors.IsUnauthorized(x.Err) || apierrors.IsForbidden(x.Err) {
		return accessRefused, since
	}
	return unreachable, since
}

// answers reports whether an error is a response of the server, rather than an error of
// the network.
func answers(err error) bool {
	var status apierrors.APIStatus
	reason := reflector.ReasonOf(err)
	return errors.As(err, &status) || reason != reflector.Unknown && reason != reflector.Refused
}

// fail logs that nothing of the cluster can be read, unless that was logged. Objects that
// were read before stay readable.
func (p *memberLog) fail(message string, since time.Time, x Examination) {
	p.answered = time.Time{}
	if p.down == "" {
		p.downSince = since
	}
	if p.down == message {
		return
	}
	p.down = message
	var args []any
	if x.Resources > 0 {
		args = append(args, "resources", x.Resources, "objects", x.Objects)
	}
	args = append(args, "err", firstOf(x.Err))
	if message == accessRefused {
		p.logger.Warn(accessRefused, args...)
		return
	}
	p.logger.Warn(unreachable, args...)
}

// firstOf returns the first of the errors that err joins. Those of one discovery usually
// have the same cause, and a log line has room for one.
func firstOf(err error) error {
	if all := health.Split(err); len(all) > 0 {
		return all[0]
	}
	return err
}

// recovered reports whether a cluster that could not be read can be read again. Each
// resource is retried at its own time, so resources that still fail count only if they
// have failed since the cluster responded.
func (p *memberLog) recovered(now time.Time, x Examination) bool {
	if p.answered.IsZero() {
		p.answered = now
		p.member.RequestDiscovery() // discovery may have failed as well
	}
	if x.State == health.Connecting || x.State == health.Syncing {
		return !p.live && x.State == health.Syncing
	}
	return !slices.ContainsFunc(x.Failing, func(r health.ResourceStatus) bool {
		return r.Reflector.ErrAt.Before(p.answered)
	})
}

// parts logs what has begun or ceased to fail in a cluster that responds.
func (p *memberLog) parts(now time.Time, x Examination) {
	failing := make(map[string]bool, len(x.Failing))
	var begun, ended []string
	for _, r := range x.Failing {
		name := r.Resource.GroupResource().String()
		failing[name] = true
		grace := p.cadence.Failure
		if !answers(r.Reflector.Err) {
			grace = p.cadence.Patience // more likely the whole cluster is about to fail
		}
		if p.begins(name, r.Reflector.Err, health.FailingSince(&r), now.Add(-grace)) {
			begun = append(begun, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.failures)) {
		if name != discovery && name != directory && !failing[name] {
			ended = append(ended, name)
		}
	}
	p.logBegun(begun, x.Resources)
	p.logEnded(ended, now)

	if p.begins(discovery, x.Discovery, now, now.Add(-p.cadence.Patience)) {
		p.logger.Warn("discovery incomplete", "err", x.Discovery)
	}
	if t, ended := p.ends(discovery, x.Discovery); ended {
		p.logger.Info("discovery complete again", "after", rounded(now.Sub(t.since)))
	}
	if p.begins(directory, x.Unlisted, now, now.Add(-p.cadence.Patience)) {
		p.logger.Warn("credentials cannot be read: the previous ones stay in use", "err", x.Unlisted)
	}
	if t, ended := p.ends(directory, x.Unlisted); ended {
		p.logger.Info("credentials can be read again", "after", rounded(now.Sub(t.since)))
	}
}

// begins records a failure, if err is one, and reports whether to log it now. Each
// failure is logged once, if it began before a deadline.
func (p *memberLog) begins(name string, err error, since, deadline time.Time) bool {
	if err == nil && (name == discovery || name == directory) {
		return false
	}
	t := p.failures[name]
	if t == nil {
		t = &failure{since: since}
		p.failures[name] = t
	}
	if t.logged || t.since.After(deadline) {
		return false
	}
	t.err, t.logged = err, true
	return true
}

// ends removes a failure if err is nil. It reports whether the failure had been logged.
func (p *memberLog) ends(name string, err error) (*failure, bool) {
	t := p.failures[name]
	if t == nil || err != nil {
		return nil, false
	}
	delete(p.failures, name)
	return t, t.logged
}

// logBegun logs resources that have begun to fail.
func (p *memberLog) logBegun(names []string, resources int) {
	if len(names) > linesAtOnce {
		p.logger.Warn("resources not current", "failing", len(names), "resources", resources,
			"first", strings.Join(names[:linesAtOnce], ","), "err", p.failures[names[0]].err)
		return
	}
	for _, name := range names {
		p.logger.Warn("resource not current", "resource", name, "err", p.failures[name].err)
	}
}

// logEnded logs resources that have ceased to fail.
func (p *memberLog) logEnded(names []string, now time.Time) {
	logged := 0
	for _, name := range names {
		if p.failures[name].logged {
			logged++
		}
	}
	if logged > linesAtOnce {
		p.logger.Info("resources current again", "resources", logged)
	}
	for _, name := range names {
		if t, ok := p.ends(name, nil); ok && logged <= linesAtOnce {
			p.logger.Info("resource current again", "resource", name, "after", rounded(now.Sub(t.since)))
		}
	}
}

// counters logs the reflectors' counters if they have grown since they were last logged.
func (p *memberLog) counters(all []health.ResourceStatus) {
	restores := uint64(0)
	for _, r := range all {
		restores += r.Reflector.Restores
		name := r.Resource.GroupResource().String()
		// Log the first object, and then whenever the number has doubled.
		if n := r.Reflector.Dropped; n > 0 && n >= 2*p.dropped[name] {
			p.dropped[name] = n
			p.logger.Warn("objects dropped", "resource", name, "objects", n, "err", r.Reflector.Err)
		}
	}
	if restores > p.restores {
		p.logger.Error("the cluster's data has gone back: etcd was restored from a backup", "resources",
			restores-p.restores)
	}
	p.restores = restores
}

// rounded returns a duration rounded for log lines.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}
