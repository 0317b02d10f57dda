// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/wire"
)

// policySilence is how long a feed of RBAC objects may be silent before it is not used for
// decisions. API servers send a bookmark each minute.
const policySilence = 90 * time.Second

// policyCheck is how long a policy that was current is used without another look.
const policyCheck = 50 * time.Millisecond

// policyKind is a resource that RBAC is made of.
type policyKind struct {
	schema.GroupResource
	// set adds an object to a policy, or replaces it, and remove removes one.
	set    func(*rbac.Policy, *wire.Object) error
	remove func(p *rbac.Policy, namespace, name string) bool
}

// policyKinds are the resources that RBAC is made of.
var policyKinds = []policyKind{
	{rbacResource("roles"), setter((*rbac.Policy).SetRole), (*rbac.Policy).DeleteRole},
	{
		rbacResource("clusterroles"), setter((*rbac.Policy).SetClusterRole),
		func(p *rbac.Policy, _, name string) bool { return p.DeleteClusterRole(name) },
	},
	{rbacResource("rolebindings"), setter((*rbac.Policy).SetRoleBinding), (*rbac.Policy).DeleteRoleBinding},
	{
		rbacResource("clusterrolebindings"), setter((*rbac.Policy).SetClusterRoleBinding),
		func(p *rbac.Policy, _, name string) bool { return p.DeleteClusterRoleBinding(name) },
	},
}

func rbacResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
}

// setter returns a function that decodes an object and sets it.
func setter[T wire.Pointer[P], P any](set func(*rbac.Policy, T) bool) func(*rbac.Policy, *wire.Object) error {
	return func(p *rbac.Policy, o *wire.Object) error {
		value, err := wire.DecodeFresh[T](o)
		if err != nil {
			return fmt.Errorf("policy: %s: %w", o, err)
		}
		set(p, value)
		return nil
	}
}

// PolicyResources returns the names of the resources that the fleet must mirror for local
// decisions.
func PolicyResources() []string {
	names := make([]string, len(policyKinds))
	for i, kind := range policyKinds {
		names[i] = kind.String()
	}
	return names
}

// policyCopy is the RBAC of one cluster, read from the fleet's copy when a decision needs it.
type policyCopy struct {
	member *fleet.Member
	policy *rbac.Policy

	// checked is when the policy was last found to be current, in nanoseconds since 1970.
	checked atomic.Int64

	// mu guards parts: for each of policyKinds, the part that the policy has.
	mu    sync.Mutex
	parts []policyPart
}

// policyPart is the state of one resource that the policy has. It costs a map entry of about
// 60 bytes for each object, which the fleet holds anyway.
type policyPart struct {
	feed     *history.Feed
	revision uint64
	objects  map[string]*wire.Object
}

func newPolicyCopy(m *fleet.Member) *policyCopy {
	return &policyCopy{member: m, policy: rbac.New(), parts: make([]policyPart, len(policyKinds))}
}

// current brings the policy up to date and reports whether it can be used: all parts have
// been read without an omission, and the cluster is not silent.
func (p *policyCopy) current() bool {
	now := time.Now()
	if now.Sub(time.Unix(0, p.checked.Load())) < policyCheck {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.updateLocked() {
		return false
	}
	p.checked.Store(now.UnixNano())
	return true
}

// updateLocked applies the changes since the last time, and reports whether the policy is
// current.
func (p *policyCopy) updateLocked() bool {
	for i, kind := range policyKinds {
		feed, ok := p.member.Feed(kind.GroupResource)
		if !ok {
			return false
		}
		is := feed.Connection()
		if is.Dropped > 0 || time.Since(is.Heard) > policySilence {
			return false
		}
		now, err := feed.Now()
		if err != nil {
			return false
		}
		part := &p.parts[i]
		if part.feed == feed && part.revision == now.Revision && part.objects != nil {
			continue
		}
		if err := part.apply(p.policy, kind, now.State); err != nil {
			part.feed = nil
			return false
		}
		part.feed, part.revision = feed, now.Revision
	}
	return true
}

// apply changes the policy to the state of one resource. Only objects that differ are
// decoded.
func (p *policyPart) apply(policy *rbac.Policy, kind policyKind, state watershed.Snapshot[*wire.Object]) error {
	next := make(map[string]*wire.Object, len(p.objects))
	for key, o := range state.Raw() {
		if p.objects[key] != o {
			if err := kind.set(policy, o); err != nil {
				maps.Copy(next, p.objects) // the policy has the objects of both states
				p.objects = next
				return err
			}
		}
		next[key] = o
	}
	for key := range p.objects {
		if _, ok := next[key]; !ok {
			if namespace, name, err := watershed.SplitKey(key); err == nil {
				kind.remove(policy, namespace, name)
			}
		}
	}
	p.objects = next
	return nil
}
