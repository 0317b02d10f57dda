// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// testFleetMembers: when a cluster leaves, watches receive deletions of its objects, and
// when it joins, additions. A client that resumes with an earlier version receives a 410.
func testFleetMembers(t *testing.T, p *pair) {
	p.fill(t, "members", 6)
	before := p.settled(t, "members")
	const path = "/api/v1/namespaces/members/configmaps"
	watchers := []*watcher{
		{path: path, stream: true, missed: true},
		{path: path, selector: "color=red", missed: true},
		{path: path, selector: "color=green", missed: true},
	}
	stop := start(t, p, "members", watchers, func() int { return math.MaxInt })
	defer stop()
	know := func(clusters ...string) {
		t.Helper()
		for _, w := range watchers {
			p.await(t, func(ctx context.Context) error {
				want, err := p.truth(ctx, "members", w.selector)
				if err != nil {
					return err
				}
				return w.knows(slices.DeleteFunc(want, func(is string) bool {
					cluster, _, _ := strings.Cut(is, "/")
					return !slices.Contains(clusters, cluster)
				}))
			})
		}
	}
	know("east", "west")
	p.join(t, p.clusters[0])
	know("east")
	left := p.await410(t, path, revision(t, before))
	if err := p.put(t.Context(), 0, "members", "meanwhile", colorOf(0), ""); err != nil {
		t.Fatal(err)
	}
	know("east")
	p.join(t, p.clusters...)
	know("east", "west")
	p.await410(t, path, left)
	if err := p.put(t.Context(), 1, "members", "meanwhile", colorOf(0), ""); err != nil {
		t.Fatal(err)
	}
	know("east", "west")
	if now := revision(t, p.settled(t, "members")); now <= left {
		t.Errorf("the version is %d and was %d", now, left)
	}
}

// await410 checks that a watch cannot resume from a version, and returns the current one.
func (p *pair) await410(t *testing.T, path string, version uint64) uint64 {
	t.Helper()
	a := p.fleet.watch(t.Context(), request{
		Method: http.MethodGet, URI: path + "?watch=1&timeoutSeconds=1&resourceVersion=" +
			strconv.FormatUint(version, 10), Accept: "application/json",
	}, patience)
	if a.err != nil || len(a.events) != 1 || a.events[0].kind != string(watch.Error) || !expired(a.events[0].object) {
		t.Errorf("a watch from before a cluster joined or left: %d %v %v", a.code, a.err, a.events)
	}
	l, err := p.read(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return revision(t, l)
}

// testFleetStale: the list has the last known objects of an unreachable cluster, and
// names the cluster in a warning.
func testFleetStale(t *testing.T, p *pair) {
	p.fill(t, "stale", 4)
	want := p.settled(t, "stale").identities()
	warnings := func(ctx context.Context) ([]string, error) {
		a := p.fleet.send(ctx, request{
			Method: http.MethodGet, URI: "/api/v1/namespaces/stale/configmaps", Accept: "application/json",
		})
		if a.err != nil || a.code != http.StatusOK {
			return nil, fmt.Errorf("%d %w", a.code, a.err)
		}
		return a.header.Values("Warning"), nil
	}
	p.clusters[1].APIServer.Kill()
	killed := time.Now()
	p.await(t, func(ctx context.Context) error {
		got, err := warnings(ctx)
		if err == nil && (len(got) != 1 || !strings.HasPrefix(got[0], `299 - "cluster west has been stale for `)) {
			err = fmt.Errorf("the warnings are %q", got)
		}
		return err
	})
	// The reachable cluster continues.
	if err := p.put(t.Context(), 0, "stale", "both-00", nil, "late"); err != nil {
		t.Fatal(err)
	}
	p.await(t, func(ctx context.Context) error {
		l, err := p.list(ctx, "stale", nil)
		if err != nil {
			return err
		}
		got := l.identities()
		if got[0] == want[0] || !slices.Equal(got[1:], want[1:]) {
			return fmt.Errorf("the list is %q, and was %q", got, want)
		}
		return nil
	})
	// One cluster was heard from just now, and the other not since it was killed: that is
	// the age.
	away := time.Since(killed)
	if age, _ := ageOf(t, p.fleet.send(t.Context(), request{
		Method: http.MethodGet, URI: "/api/v1/namespaces/stale/configmaps",
	})); age < away.Truncate(time.Millisecond) {
		t.Errorf("the list is %v old, and a cluster is away for %v", age, away)
	}
	if err := p.clusters[1].APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.await(t, func(ctx context.Context) error {
		got, err := warnings(ctx)
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("the warnings are %q", got)
		}
		return err
	})
	p.settled(t, "stale")
}
