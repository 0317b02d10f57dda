// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// newControl returns a control of clusters that do not respond, and their members.
func newControl(t *testing.T, opts Options, names ...string) (*Control, []*fleet.Member) {
	t.Helper()
	f := newFleet(t, names...)
	expect.Soon(t, "the fleet has its members", func() bool { return len(f.Members()) == len(names) })
	c, err := New(f, opts)
	expect.NoError(t, err)
	t.Cleanup(c.Close)
	return c, f.Members()
}

// requestOf returns a request of a caller, with its record.
func requestOf(t *testing.T, who *caller) (*http.Request, *Call) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	expect.NoError(t, err)
	r, end := recorded(r)
	t.Cleanup(end)
	call := CallOf(r)
	call.caller, call.User = who, &who.UserInfo
	return r, call
}

func named(name string, groups ...string) *caller {
	return &caller{
		Identity: authn.Identity{
			UserInfo: authenticationv1.UserInfo{Username: name, Groups: groups},
			Method:   authn.MethodToken,
		},
	}
}

// One cluster that does not answer must not delay the end of watches in another.
func TestWatches_hangingCluster(t *testing.T) {
	c, members := newControl(t, Options{Recheck: 10 * time.Millisecond}, "good", "hanging")
	var guards []*guard
	for _, m := range members {
		expect.Soon(t, "the member has a connection", func() bool { return m.Cluster() != nil })
		g, err := c.of(m)
		expect.NoError(t, err)
		guards = append(guards, g)
	}
	owner := &caller{Identity: ownerIdentity(), owner: true}
	add := func(g *guard, selector string, still func(context.Context) (bool, error)) context.Context {
		r, call := requestOf(t, owner)
		return c.add(r, call, g, replica.Attributes{Verb: "watch", LabelSelector: selector}, still)
	}
	var hanging atomic.Int32
	for i := range 4 * checks {
		add(guards[1], fmt.Sprint(i), func(ctx context.Context) (bool, error) {
			hanging.Add(1)
			<-ctx.Done()
			return false, ctx.Err()
		})
	}
	var lost atomic.Bool
	ends := add(guards[0], "", func(context.Context) (bool, error) { return !lost.Load(), nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	defer running.Wait()
	defer cancel()
	expect.Soon(t, "checks of the cluster hang", func() bool { return hanging.Load() >= checks })
	lost.Store(true)
	select {
	case <-ends.Done():
	case <-time.After(8 * time.Second): // a check that hangs takes 10
		t.Error("the watch goes on while another cluster does not answer")
	}
}

// Watches share a right only if everything is equal that a decision depends on.
func TestWatches_rightOfACaller(t *testing.T) {
	c, _ := newControl(t, Options{})
	as := func(user *caller, impersonator string) *caller {
		user.impersonator = named(impersonator)
		return user
	}
	withUID, withExtra := named("ann"), named("ann")
	withUID.UID, withExtra.Extra = "1", map[string]authenticationv1.ExtraValue{"scope": {"few"}}
	callers := []*caller{
		named("ann"), named("bob"), named("ann", "g1"), named("ann", "g2"), named("ann", "g1", "g2"), withUID,
		withExtra,
		as(named("ann"), "imp"), as(named("ann"), "other"), as(named("ann", "g1"), "imp"),
	}
	for range 2 { // the second time, each joins its own right
		for _, who := range callers {
			r, call := requestOf(t, who)
			c.add(r, call, nil, replica.Attributes{Verb: "watch"}, func(context.Context) (bool, error) {
				return true, nil
			})
		}
	}
	if len(c.rights) != len(callers) {
		t.Errorf("%d rights of %d callers", len(c.rights), len(callers))
	}
}

// A watch of the fleet depends on the members that it contains: it ends if its caller does not
// cross to one of them any more, and goes on if another one does not answer.
func TestVisible_still(t *testing.T) {
	c, members := newControl(t, Options{Crossing: Crossing{Home: "home", Users: []string{"oidc:*"}}}, "home", "other")
	home, other := members[0], members[1]
	who := named("oidc:cy")
	who.at = home
	now := func(contained ...*fleet.Member) (bool, error) {
		seen := visible{members: map[*fleet.Member]bool{}}
		for _, m := range contained {
			seen.members[m] = true
		}
		return seen.still(c.review(t.Context(), who, replica.Attributes{Verb: "get"}, c.present(seen.members)))
	}
	if kept, err := now(); !kept || err != nil {
		t.Errorf("a watch without the members that do not answer: %t, %v", kept, err)
	}
	if kept, err := now(other); !kept || err == nil {
		t.Errorf("a watch with a member that does not answer: %t, %v", kept, err)
	}
	expect.NoError(t, c.Cross(Crossing{}))
	if kept, err := now(other); kept || err != nil {
		t.Errorf("a watch with a member that does not know the caller any more: %t, %v", kept, err)
	}
}

// The cluster decides whether a caller may be another user, if the request is passed on. The
// record names both.
func TestAuthorize_recordsImpersonationThatIsPassedOn(t *testing.T) {
	c, _ := newControl(t, Options{})
	r, call := requestOf(t, named("imp"))
	r.Header.Set("Impersonate-User", "boss")
	r.Header.Set("Impersonate-Group", "chiefs")
	for range 2 {
		access, err := c.Authorize(r, &replica.Request{Passed: true})
		expect.NoError(t, err)
		if call.User.Username != "boss" || call.User.Groups[0] != "chiefs" || call.Impersonator == nil ||
			call.Impersonator.Username != "imp" || access.User != named("imp").key() {
			t.Errorf("user %v, impersonator %v, %+v", call.User, call.Impersonator, access)
		}
	}
}

// A request whose credentials cannot be passed on is work of the replica, and counts as such.
func TestAdmit_withheldCredentials(t *testing.T) {
	var passed []bool
	c, _ := newControl(t, Options{Owner: "secret",
		Admit: func(_ *http.Request, q *replica.Request, _ string) (func(), error) {
			passed = append(passed, q.Passed)
			return func() {}, nil
		}})
	r, _ := requestOf(t, named(""))
	r.Header.Set("Authorization", "Bearer secret")
	q := &replica.Request{Cluster: "a", Path: "/apis", Passed: true}
	_, err := c.Admit(r, q)
	expect.NoError(t, err)
	expect.Equal(t, passed, []bool{false})
	access, err := c.Authorize(r, q)
	expect.NoError(t, err)
	if access.NoPassThrough == "" {
		t.Errorf("the owner's token may be passed on: %+v", access)
	}
}

// A home cluster that is not in the fleet is named to the callers.
func TestHome_isMissing(t *testing.T) {
	c, _ := newControl(t, Options{Crossing: Crossing{Home: "nope"}}, "a")
	r, _ := requestOf(t, named(""))
	r.Header.Set("Authorization", "Bearer x")
	if _, err := c.Admit(r, &replica.Request{Fleet: true}); err == nil ||
		!strings.Contains(err.Error(), `the home cluster "nope"`) {
		t.Error(err)
	}
}

// TestReviews_grammar checks the texts that have a number of clusters.
func TestReviews_grammar(t *testing.T) {
	for got, want := range map[string]string{
		allowedIn(0, 0):  "there is no cluster whose API you may use",
		allowedIn(0, 1):  "not allowed in the only cluster whose API you may use",
		allowedIn(1, 1):  "allowed in the only cluster whose API you may use",
		allowedIn(1, 2):  "allowed in 1 of the 2 clusters whose API you may use",
		reviewsFailed(1): "the access review failed or took longer than 1s in 1 cluster",
		reviewsFailed(2): "access reviews failed or took longer than 1s in 2 clusters",
	} {
		expect.Equal(t, got, want)
	}
}

// The record has the decision about the request, not about a part of its answer.
func TestAuthorize_recordsTheFirstDecision(t *testing.T) {
	c, _ := newControl(t, Options{})
	r, call := requestOf(t, named("ann"))
	_, err := c.Authorize(r, &replica.Request{Cluster: "a"})
	expect.NoError(t, err)
	if _, err = c.Authorize(r, &replica.Request{Path: MetricsPath}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	expect.Equal(t, call.Decision, "allow")
}

// A change of the configuration applies to the metrics too.
func TestCross_appliesToMetrics(t *testing.T) {
	c, _ := newControl(t, Options{Crossing: Crossing{Home: "home"}}, "home")
	ask := func() error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the cluster would not answer"))
		r, _ := requestOf(t, named("oidc:cy"))
		_, err := c.Authorize(r.WithContext(context.WithValue(ctx, callKey{}, CallOf(r))),
			&replica.Request{Path: MetricsPath})
		return err
	}
	if err := ask(); err == nil || apierrors.IsForbidden(err) {
		t.Errorf("a caller that crosses: %v", err)
	}
	expect.NoError(t, c.Cross(Crossing{Members: []string{"others"}}))
	if err := ask(); !apierrors.IsForbidden(err) {
		t.Errorf("a caller that does not cross any more: %v", err)
	}
}
