// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/cmd/watershed/internal/authz"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica"
)

// authorizer decides about requests for one cluster: an [authz.Reviewer] asks the cluster,
// an [authz.Local] evaluates its RBAC.
type authorizer interface {
	Authorize(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (authz.Decision, error)
	Fresh(ctx context.Context, user *authenticationv1.UserInfo, a replica.Attributes) (authz.Decision, error)
}

// decideFunc is a method of an authorizer.
type decideFunc func(
	authorizer, context.Context, *authenticationv1.UserInfo, replica.Attributes,
) (authz.Decision, error)

const (
	// ownerTimeout is how long a cluster may take to decide about the owner.
	ownerTimeout = 800 * time.Millisecond
	// ownerPause is how long a cluster that did not decide is not asked again.
	ownerPause = 10 * time.Second
	// powerlessPause is how long a cluster that has refused to review the access of others is
	// not asked again about the user of the connection's credentials.
	powerlessPause = time.Minute
	// selfTTL is how long that user is remembered.
	selfTTL = 10 * time.Second
	// credentialID is the extra value in which kube-apiserver names the credential of a user.
	credentialID = "authentication.kubernetes.io/credential-id"
)

// guard authenticates and authorizes the callers of one connection to one cluster. All its
// caches end with it.
type guard struct {
	member     *fleet.Member
	connection *kube.Cluster
	authn      *authn.Cluster
	// reviewer asks the cluster, self asks it about the credentials of the connection, and
	// local, which is nil unless RBAC of the cluster is evaluated here, uses reviewer.
	reviewer, self *authz.Reviewer
	local          *authz.Local
	// policy is the RBAC of the cluster. It is empty until it is used.
	policy *policyCopy
	// pending means that RBAC of the cluster has changed, and its watches are about to be
	// checked; again, that they are to be checked once more some seconds later.
	pending, again atomic.Bool
	// silent is when the cluster last did not answer about the owner, and powerless when it
	// last refused to review the access of others, in nanoseconds since 1970.
	silent, powerless atomic.Int64

	// mu guards owner, which is the identity of the connection's credentials, nil before it
	// is known, and asked, the time when the cluster was asked for it.
	mu    sync.Mutex
	owner *authenticationv1.UserInfo
	asked time.Time
}

// decidesLocally reports whether RBAC of the cluster is evaluated here, and has agreed with
// the cluster so far.
func (g *guard) decidesLocally() bool {
	if g.local == nil {
		return false
	}
	is := g.local.Stats()
	return is.Proven && is.Fallback == ""
}

func (g *guard) close() {
	if g.local != nil {
		g.local.Close()
	}
	g.reviewer.Close()
	g.self.Close()
	g.authn.Close()
}

// authorizer returns what decides about a caller, and the user to decide about.
func (g *guard) authorizer(who *caller) (authorizer, *authenticationv1.UserInfo) {
	switch {
	case who.owner:
		return g.self, nil
	case g.local != nil:
		return g.local, &who.UserInfo
	}
	return g.reviewer, &who.UserInfo
}

// decide returns the cluster's decision about a request, which may be some seconds old.
func (g *guard) decide(ctx context.Context, who *caller, a replica.Attributes) (authz.Decision, error) {
	if who.owner {
		return g.decideOwner(ctx, a)
	}
	return g.ask(ctx, who, a, authorizer.Authorize)
}

// ask asks for a decision about a caller. If the credentials of the connection may not review
// the access of others, which people seldom may, the cluster decides about a caller that is the
// user of these credentials as it does about the owner.
func (g *guard) ask(ctx context.Context, who *caller, a replica.Attributes, decide decideFunc) (authz.Decision, error) {
	if !who.owner && g.member.Unconfirmed() {
		// What can be read is the last state from files. Whoever answers the review may be
		// another cluster.
		return authz.Decision{}, unconfirmed(g.member)
	}
	by, user := g.authorizer(who)
	if time.Since(time.Unix(0, g.powerless.Load())) < powerlessPause && g.isSelf(ctx, who) {
		return decide(g.self, ctx, nil, a)
	}
	d, err := decide(by, ctx, user, a)
	if authz.LacksRight(err) {
		g.powerless.Store(time.Now().UnixNano())
		if g.isSelf(ctx, who) {
			return decide(g.self, ctx, nil, a)
		}
	}
	return d, err
}

// isSelf reports whether a caller is the user of the connection's credentials: the same name,
// UID, groups and extra values, except for the name of the credential itself.
func (g *guard) isSelf(ctx context.Context, who *caller) bool {
	if who.at != g.member || who.impersonator != nil {
		return false
	}
	self, err := g.identity(ctx, selfTTL)
	if err != nil {
		return false
	}
	groups := func(u *authenticationv1.UserInfo) []string { return slices.Sorted(slices.Values(u.Groups)) }
	extra := func(u *authenticationv1.UserInfo) map[string]authenticationv1.ExtraValue {
		values := maps.Clone(u.Extra)
		delete(values, credentialID)
		return values
	}
	return self.Username == who.Username && self.UID == who.UID && slices.Equal(groups(self), groups(&who.UserInfo)) &&
		maps.EqualFunc(extra(self), extra(&who.UserInfo), slices.Equal)
}

// decideOwner decides about a request of the owner. If the cluster cannot be reached, the
// owner may read the copy: it was read with the owner's own credentials, so the cluster has
// allowed that. Then the cluster is not asked for some seconds. After a restart the copy is that
// of the files of the last run.
func (g *guard) decideOwner(ctx context.Context, a replica.Attributes) (authz.Decision, error) {
	reads := a.Verb == "get" || a.Verb == "list" || a.Verb == "watch"
	unanswered := authz.Decision{
		Allowed: true, Reason: "the cluster cannot be reached, and the copy was read with these credentials",
	}
	if reads && time.Since(time.Unix(0, g.silent.Load())) < ownerPause {
		return unanswered, nil
	}
	asked, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	d, err := g.self.Authorize(asked, nil, a)
	if authz.Unanswered(err) && reads && ctx.Err() == nil {
		g.silent.Store(time.Now().UnixNano())
		return unanswered, nil
	}
	if g.member.Refresh() {
		// The server at the address answers, and it is not known yet whether it is the cluster
		// whose last state is read.
		return authz.Decision{}, unconfirmed(g.member)
	}
	return d, err
}

// decideNow returns the cluster's decision at this moment.
func (g *guard) decideNow(ctx context.Context, who *caller, a replica.Attributes) (authz.Decision, error) {
	return g.ask(ctx, who, a, authorizer.Fresh)
}

// flush forgets the decisions, because the rights in the cluster have changed.
func (g *guard) flush() {
	g.self.Flush()
	g.reviewer.Flush()
}

// forbidden returns the 403 that the cluster would return.
func (g *guard) forbidden(ctx context.Context, who *caller, a replica.Attributes, reason string) error {
	return authz.Forbidden(g.userOf(ctx, who), a, reason)
}

// userOf returns the name and the groups that the cluster knows a caller by.
func (g *guard) userOf(ctx context.Context, who *caller) *authenticationv1.UserInfo {
	if !who.owner {
		return &who.UserInfo
	}
	user, err := g.identity(ctx, 0)
	if err != nil {
		return &who.UserInfo
	}
	return user
}

// identity returns the identity that the cluster gives to the credentials of the connection. It
// asks the cluster if the answer is older than ttl, which is forever if ttl is 0.
func (g *guard) identity(ctx context.Context, ttl time.Duration) (*authenticationv1.UserInfo, error) {
	g.mu.Lock()
	known, asked := g.owner, g.asked
	g.mu.Unlock()
	if known != nil && (ttl == 0 || time.Since(asked) < ttl) {
		return known, nil
	}
	asked = time.Now()
	user, err := whoami(ctx, g.connection)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owner, g.asked = user, asked
	return user, nil
}

// whoami returns the identity that a cluster gives to the credentials of a connection.
func whoami(ctx context.Context, c *kube.Cluster) (*authenticationv1.UserInfo, error) {
	client, err := authenticationclient.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("identity at %s: %w", c.Name(), err)
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("identity at %s: %w", c.Name(), err)
	}
	return &review.Status.UserInfo, nil
}
