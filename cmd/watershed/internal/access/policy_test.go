// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
	"github.com/watershed-project/watershed/wire"
)

// TestPolicyKinds adds an object of each kind to a policy, and removes it again. Each of them is needed
// for one of two requests.
func TestPolicyKinds(t *testing.T) {
	const rules = `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":[%q]}]`
	const binding = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":"r"},
		"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ann"}]`
	texts := map[string]struct{ kind, namespace, content string }{
		"roles":               {"Role", "shop", fmt.Sprintf(rules, "pods")},
		"clusterroles":        {"ClusterRole", "", fmt.Sprintf(rules, "nodes")},
		"rolebindings":        {"RoleBinding", "shop", fmt.Sprintf(binding, "Role")},
		"clusterrolebindings": {"ClusterRoleBinding", "", fmt.Sprintf(binding, "ClusterRole")},
	}
	policy := rbac.New()
	set := func(kind policyKind) {
		is := texts[kind.Resource]
		text := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":%q,
			"metadata":{"name":"r","namespace":%q,"resourceVersion":"7"},%s}`, is.kind, is.namespace, is.content)
		o, err := wire.NewObject([]byte(text), wire.JSON, &wire.Kind{
			GroupVersionKind: schema.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: is.kind},
		})
		expect.NoError(t, err)
		expect.NoError(t, kind.set(policy, o))
	}
	allowed := func() [2]bool {
		ann := &authenticationv1.UserInfo{Username: "ann"}
		get := replica.Attributes{IsResource: true, Verb: "get", Version: "v1", Name: "x"}
		pods, nodes := get, get
		pods.Resource, pods.Namespace, nodes.Resource = "pods", "shop", "nodes"
		mayPods, _ := policy.Authorize(ann, pods)
		mayNodes, _ := policy.Authorize(ann, nodes)
		return [2]bool{mayPods, mayNodes}
	}
	for _, kind := range policyKinds {
		set(kind)
	}
	expect.Equal(t, allowed(), [2]bool{true, true})
	for _, kind := range policyKinds {
		is := texts[kind.Resource]
		kind.remove(policy, is.namespace, "r")
		expect.Equal(t, allowed(), [2]bool{is.namespace == "", is.namespace != ""})
		set(kind)
		expect.Equal(t, allowed(), [2]bool{true, true})
	}
}
