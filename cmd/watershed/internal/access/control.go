// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/cmd/watershed/internal/authz"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/replica"
)

// refusalStep is the unit of the time that a 401 takes. Without it, the time would show
// whether a cluster exists. It is longer than most clusters need to check a token.
const refusalStep = 200 * time.Millisecond

// ownGroup is the API group of the program's own resources, such as verifications. The owner
// may use all of them. For other callers, each cluster decides.
const ownGroup = "watershed.dev"

// Control authenticates and authorizes the requests to a replica. All methods are safe for
// concurrent use.
type Control struct {
	*guards
	*watches
	opts   Options
	owner  [sha256.Size]byte
	absent *authn.Absent

	authentications, authorizations outcomes
}

// New returns a control for a fleet. The caller runs [Control.Run] while it serves.
func New(f *fleet.Fleet, opts Options) (*Control, error) {
	if err := opts.Crossing.Validate(); err != nil {
		return nil, err
	}
	c := &Control{opts: opts.withDefaults(), absent: authn.NewAbsent()}
	c.guards = newGuards(f, c.opts)
	c.watches = newWatches(c.guards, c.opts)
	if opts.Owner != "" {
		c.owner = sha256.Sum256([]byte(opts.Owner))
	}
	return c, nil
}

// NewOwnerToken returns a token for [Options.Owner].
func NewOwnerToken() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(secret[:])
}

// Admit authenticates the caller and bounds the work in progress. It is [replica.Options.Admit].
func (c *Control) Admit(r *http.Request, q *replica.Request) (func(), error) {
	if isProbe(q) {
		return func() {}, nil
	}
	began := time.Now()
	who, err := c.authenticate(r, q)
	c.authentications.count(err)
	if apierrors.IsUnauthorized(err) {
		_ = timer.Sleep(r.Context(), refusalStep-time.Since(began)%refusalStep)
	}
	if err != nil {
		return nil, err
	}
	call := CallOf(r)
	call.caller, call.User = who, &who.UserInfo
	if who.withheld() != "" {
		q.Passed = false // the replica answers or refuses it
	}
	if c.opts.Admit == nil {
		return func() {}, nil
	}
	return c.opts.Admit(r, q, who.key())
}

// isProbe reports whether a request is for the health of the process, which has no details.
func isProbe(q *replica.Request) bool {
	if q.Cluster != "" || q.Fleet || q.Query.Has("verbose") {
		return false
	}
	return q.Path == "/livez" || q.Path == "/readyz" || q.Path == "/healthz"
}

// authenticate returns the caller of a request.
func (c *Control) authenticate(r *http.Request, q *replica.Request) (*caller, error) {
	if c.isOwner(r) {
		return &caller{Identity: ownerIdentity(), owner: true}, nil
	}
	if q.Cluster == "" {
		return c.authenticateFleet(r)
	}
	switch {
	case q.Member != nil:
		return c.authenticateAt(r, q.Member)
	case !c.fleet.Known():
		return nil, apierrors.NewServiceUnavailable("the clusters are not known yet")
	}
	if _, joined := c.fleet.Member(q.Cluster); joined { // since the request was resolved
		return nil, apierrors.NewServiceUnavailable("the cluster has just joined")
	}
	return nil, c.absent.Authenticate(r, q.Cluster)
}

// authenticateAt authenticates a caller at a member.
func (c *Control) authenticateAt(r *http.Request, m *fleet.Member) (*caller, error) {
	g, err := c.of(m)
	if err != nil {
		return nil, err
	}
	id, err := g.authn.Authenticate(r.Context(), r)
	if err != nil {
		return nil, err
	}
	return &caller{Identity: *id, at: m}, nil
}

// authenticateFleet authenticates a caller below /fleet: by OpenID Connect if the token is
// of its issuer, else at the home cluster. A certificate names a user of one cluster only,
// so it is not accepted.
func (c *Control) authenticateFleet(r *http.Request) (*caller, error) {
	if _, ok := authn.BearerToken(r); !ok {
		return nil, errUnauthorized()
	}
	if c.opts.Crossing.OIDC != nil && c.opts.Crossing.OIDC.Issued(r) {
		id, err := c.opts.Crossing.OIDC.Authenticate(r.Context(), r)
		if err != nil {
			return nil, err
		}
		return &caller{Identity: *id}, nil
	}
	if c.opts.Crossing.Home == "" {
		return nil, errUnauthorized()
	}
	home, ok := c.fleet.Member(c.opts.Crossing.Home)
	if !ok {
		return nil, apierrors.NewServiceUnavailable(
			fmt.Sprintf("the home cluster %q, which authenticates requests below /fleet, is not in the fleet: see "+
				"serve --home", c.opts.Crossing.Home),
		)
	}
	plain := *r
	plain.TLS = nil // its certificate has precedence over the token otherwise
	return c.authenticateAt(&plain, home)
}

// isOwner reports whether a request has the token of the owner.
func (c *Control) isOwner(r *http.Request) bool {
	token, ok := authn.BearerToken(r)
	if !ok || c.opts.Owner == "" {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], c.owner[:]) == 1
}

func ownerIdentity() authn.Identity {
	id := authn.Identity{Method: "owner"}
	id.Username = "watershed:owner"
	return id
}

// Authorize decides whether a request may be answered. It is [replica.Options.Authorize].
func (c *Control) Authorize(r *http.Request, q *replica.Request) (*replica.Access, error) {
	if isProbe(q) {
		return &replica.Access{CanSee: func(*fleet.Member) bool { return false }}, nil
	}
	call := CallOf(r)
	if call == nil || call.caller == nil {
		return nil, errUnauthorized() // Admit was not called
	}
	if q.Passed {
		// The cluster decides with the caller's own credentials, also about impersonation.
		call.recordImpersonation(r)
		return &replica.Access{Caller: call.caller.key(), User: call.caller.key()}, nil
	}
	// A request is decided about once. Further calls are questions about parts of its answer.
	first := call.Decision == ""
	if impersonates(r) && call.caller.impersonator == nil {
		if err := c.impersonate(r, q, call); err != nil {
			return nil, err
		}
	}
	reason := call.Reason
	access, err := c.authorize(r, q, call)
	c.authorizations.count(err)
	if !first {
		call.Reason = reason
	}
	switch {
	case err == nil:
		user := call.caller.presenter()
		access.User, access.NoPassThrough, access.Ambient = user.key(), user.withheld(),
			user.Method == authn.MethodCertificate
		if first {
			call.Decision = "allow"
		}
	case apierrors.IsForbidden(err) && first:
		call.Decision = "forbid"
	}
	return access, err
}

func (c *Control) authorize(r *http.Request, q *replica.Request, call *Call) (*replica.Access, error) {
	who := call.caller
	if q.Cluster == "" {
		return c.authorizeFleet(r, q, call)
	}
	if q.Member == nil { // only the owner gets here without one
		return &replica.Access{Caller: who.key()}, nil
	}
	g, err := c.of(q.Member)
	if err != nil {
		return nil, err
	}
	a := q.Attributes()
	decide, decideNow := g.decide, g.decideNow
	if who.owner {
		decideNow = g.decide // the owner may read the copy while the cluster does not answer
	}
	if isConsistent(r, q) {
		// The response comes from the cluster and is read with this program's rights, so
		// the decision is as fresh as the data.
		decide = decideNow
	}
	if err := c.decide(r, call, g, who, a, decide); err != nil {
		return nil, err
	}
	access := &replica.Access{Caller: who.key(), CanSee: func(*fleet.Member) bool { return false }}
	if who.owner {
		access.Caller = ""
	}
	if a.Verb == "watch" {
		access.Expires = c.add(r, call, g, a, func(ctx context.Context) (bool, error) {
			d, err := decideNow(ctx, who, a)
			return d.Allowed, err
		})
	}
	return access, nil
}

// decide returns an error unless a decision of a cluster allows a request of a caller.
func (c *Control) decide(
	r *http.Request, call *Call, g *guard, who *caller, a replica.Attributes,
	decision func(context.Context, *caller, replica.Attributes) (authz.Decision, error),
) error {
	d, err := decision(r.Context(), who, a)
	if err != nil {
		return err
	}
	call.Reason = d.Reason
	if !d.Allowed {
		return g.forbidden(r.Context(), who, a, d.Reason)
	}
	return nil
}

// usesAPI are the attributes of the request that a caller must be allowed in a cluster to learn
// that the cluster exists.
var usesAPI = replica.Attributes{Verb: "get", Path: "/api"}

// authorizeFleet decides which members answer a request below /fleet, or one for the server
// itself.
func (c *Control) authorizeFleet(r *http.Request, q *replica.Request, call *Call) (*replica.Access, error) {
	who, a := call.caller, q.Attributes()
	switch {
	case isMetrics(q):
		return c.authorizeMetrics(r, call, a)
	case !q.Fleet && who.owner:
		// The names and the health of the clusters are in the kubeconfig of the owner, or
		// follow from it.
		return &replica.Access{Caller: who.key()}, nil
	case !q.Fleet:
		// The pages of the server are about the members whose API the caller may use.
		a = usesAPI
	}
	if q.Fleet && who.owner && a.Group == ownGroup {
		return &replica.Access{Caller: who.key()}, nil // no cluster has the program's own resources
	}
	if isReview(a) {
		// Its answer has the identity, or what the members decide about the caller.
		return &replica.Access{Caller: who.key()}, nil
	}
	seen := c.review(r.Context(), who, a, c.fleet.Members())
	if len(seen.members) == 0 {
		if seen.unavailable > 0 {
			return nil, apierrors.NewServiceUnavailable("no cluster allows the request, and " +
				reviewsFailed(seen.unavailable))
		}
		return nil, authz.Forbidden(&who.UserInfo, a, "no cluster allows it")
	}
	access := &replica.Access{
		Caller: who.key(), Unavailable: seen.unavailable, CanSee: func(m *fleet.Member) bool { return seen.members[m] },
	}
	if who.owner && seen.unavailable == 0 && len(seen.denied) == 0 {
		// Clusters that join are read with the owner's credentials too, so a watch goes on.
		// Versions and tokens need no binding: the owner sees everything.
		access.CanSee, access.Caller = nil, ""
	}
	if a.Verb == "watch" {
		access.Expires = c.add(r, call, nil, a, func(ctx context.Context) (bool, error) {
			return seen.still(c.review(ctx, who, a, c.present(seen.members)))
		})
	}
	return access, nil
}

// isConsistent reports whether a request is passed on to the cluster.
func isConsistent(r *http.Request, q *replica.Request) bool {
	return r.Header.Get("Watershed-Read") != "" || q.Query.Has("watershedRead")
}

// Cross changes which identities cross to which members. The home and the issuer stay. Watches
// of identities that do not cross any more end when their rights are checked the next time.
func (c *Control) Cross(x Crossing) error {
	if err := x.Validate(); err != nil {
		return err
	}
	x.Home, x.OIDC = c.opts.Crossing.Home, c.opts.Crossing.OIDC
	c.crossing.Store(&x)
	return nil
}

// Run checks the rights of watches again until ctx ends, and drops what belongs to clusters
// that have left.
func (c *Control) Run(ctx context.Context) error {
	c.run(ctx)
	return nil
}

// Close ends everything that is done in the background. No requests may follow.
func (c *Control) Close() {
	c.close()
	c.absent.Close()
	if issuer := c.opts.Crossing.OIDC; issuer != nil {
		issuer.Close()
	}
}

// Handler returns a handler that records each request in its context before next answers
// it. The hooks need the record.
func (c *Control) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, end := recorded(r)
		defer end()
		next.ServeHTTP(w, r)
	})
}

// MetricsPath is the path of the metrics. They contain the names of all clusters and
// resources, so not every caller may read them.
const MetricsPath = "/metrics"

// isMetrics reports whether a request is for the metrics of the server itself.
func isMetrics(q *replica.Request) bool {
	return q.Cluster == "" && !q.Fleet && q.Path == MetricsPath
}

// authorizeMetrics decides about a request for the metrics. As in kube-apiserver, a caller
// needs the right to get the path /metrics. The home cluster decides, because the metrics are
// not those of one cluster. The owner may read them.
func (c *Control) authorizeMetrics(r *http.Request, call *Call, a replica.Attributes) (*replica.Access, error) {
	who := call.caller
	access := &replica.Access{Caller: who.key()}
	if who.owner {
		return access, nil
	}
	home, ok := c.fleet.Member(c.opts.Crossing.Home)
	if c.opts.Crossing.Home == "" || !ok {
		return nil, authz.Forbidden(&who.UserInfo, a, "only a home cluster can allow it, see --home")
	}
	as := c.crossing.Load().cross(who, home)
	if as == nil {
		return nil, authz.Forbidden(&who.UserInfo, a, "the home cluster does not accept the identity")
	}
	g, err := c.of(home)
	if err == nil {
		err = c.decide(r, call, g, as, a, g.decide)
	}
	return access, err
}

// Totals returns the counts.
func (c *Control) Totals() Totals {
	t := c.totals()
	t.Authentications, t.Authorizations = c.authentications.load(), c.authorizations.load()
	return t
}
