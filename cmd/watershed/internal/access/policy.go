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
	"github.com/watershed-project/watershed/wire"
)

// policySilence is how long a feed of RBAC objects may be silent before it is not used for
// decisions. API servers send a bookmark each minute.
const policySilence = 90 * time.Second

// policyCheck is how long a policy that was current is used without another look.
const policyCheck = 50 * time.Millisecond

// policyResources are the resources that RBAC is made of.
var policyResources = []schema.GroupResource{
	{Group: rbacv1.GroupName, Resource: "roles"},
	{Group: rbacv1.GroupName, Resource: "clusterroles"},
	{Group: rbacv1.GroupName, Resource: "rolebindings"},
	{Group: rbacv1.GroupName, Resource: "clusterrolebindings"},
}

// PolicyResources returns the names of the resources that the fleet must mirror for local
// decisions.
func PolicyResources() []string {
	names := make([]string, len(policyResources))
	for i, r := range policyResources {
		names[i] = r.String()
	}
	return names
}

// policyCopy is the RBAC of one cluster, read from the fleet's copy when a decision needs it.
type policyCopy struct {
	member *fleet.Member
	policy *rbac.Policy

	// checked is when the policy was last found to be current, in nanoseconds since 1970.
	checked atomic.Int64

	// mu guards parts: for each of policyResources, the part that the policy has.
	mu    sync.Mutex
	parts []policyPart
}

// policyPart is the state of one resource that the policy has. It costs a map entry of about
// 60 bytes for each object, which the fleet holds anyway.
type policyPart struct {
	feed     *fleet.Feed
	revision uint64
	objects  map[string]*wire.Object
}

func newPolicyCopy(m *fleet.Member) *policyCopy {
	return &policyCopy{member: m, policy: rbac.New(), parts: make([]policyPart, len(policyResources))}
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
	for i, resource := range policyResources {
		feed, ok := p.member.Feed(resource)
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
		if err := part.apply(p.policy, resource.Resource, now.State); err != nil {
			part.feed = nil
			return false
		}
		part.feed, part.revision = feed, now.Revision
	}
	return true
}

// apply changes the policy to the state of one resource. Only objects that differ are
// decoded.
func (p *policyPart) apply(policy *rbac.Policy, resource string, state watershed.Snapshot[*wire.Object]) error {
	next := make(map[string]*wire.Object, len(p.objects))
	for key, o := range state.Raw() {
		if p.objects[key] != o {
			if err := set(policy, resource, o); err != nil {
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
				remove(policy, resource, namespace, name)
			}
		}
	}
	p.objects = next
	return nil
}

// set adds an object to the policy, or replaces it.
func set(policy *rbac.Policy, resource string, o *wire.Object) error {
	var err error
	switch resource {
	case "roles":
		err = decoded(o, func(r *rbacv1.Role) { policy.SetRole(r) })
	case "clusterroles":
		err = decoded(o, func(r *rbacv1.ClusterRole) { policy.SetClusterRole(r) })
	case "rolebindings":
		err = decoded(o, func(b *rbacv1.RoleBinding) { policy.SetRoleBinding(b) })
	default:
		err = decoded(o, func(b *rbacv1.ClusterRoleBinding) { policy.SetClusterRoleBinding(b) })
	}
	if err != nil {
		return fmt.Errorf("policy: %s: %w", o, err)
	}
	return nil
}

func decoded[T wire.Pointer[P], P any](o *wire.Object, use func(T)) error {
	value, err := wire.DecodeFresh[T](o)
	if err == nil {
		use(value)
	}
	return err
}

// remove removes an object from the policy.
func remove(policy *rbac.Policy, resource, namespace, name string) {
	switch resource {
	case "roles":
		policy.DeleteRole(namespace, name)
	case "clusterroles":
		policy.DeleteClusterRole(name)
	case "rolebindings":
		policy.DeleteRoleBinding(namespace, name)
	default:
		policy.DeleteClusterRoleBinding(name)
	}
}
