// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package rbac

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
}

func namespaceBinding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
}

func userSubject(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "User", Name: name} }

func person(name string, groups ...string) *authenticationv1.UserInfo {
	return &authenticationv1.UserInfo{Username: name, Groups: groups}
}

var (
	readPods = rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	getPod   = replica.Attributes{
		Verb: "get", IsResource: true, Version: "v1", Resource: "pods", Namespace: "a", Name: "x",
	}
)

// check compares a decision.
func check(
	t *testing.T, p *Policy, user *authenticationv1.UserInfo, a replica.Attributes, allowed bool, reason string,
) {
	t.Helper()
	gotAllowed, gotReason := p.Authorize(user, a)
	if gotAllowed != allowed || gotReason != reason {
		t.Errorf("%s %s: %v %q, want %v %q", user.Username, a.Verb, gotAllowed, gotReason, allowed, reason)
	}
}

func TestAuthorize_followsEachObject(t *testing.T) {
	p := New()
	alice := person("alice")
	check(t, p, alice, getPod, false, "")
	p.SetClusterRoleBinding(clusterBinding("readers", "reader", userSubject("alice")))
	check(t, p, alice, getPod, false, `RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found`)
	p.SetRoleBinding(namespaceBinding("a", "own", "Role", "local", userSubject("alice")))
	check(t, p, alice, getPod, false,
		`RBAC: [clusterrole.rbac.authorization.k8s.io "reader" not found, role.rbac.authorization.k8s.io "local" not found]`)
	p.SetRole(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "local"},
		Rules:      []rbacv1.PolicyRule{readPods},
	})
	check(t, p, alice, getPod, true, `RBAC: allowed by RoleBinding "own/a" of Role "local" to User "alice"`)
	p.SetClusterRole(clusterRole("reader", readPods))
	check(t, p, alice, getPod, true,
		`RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "alice"`)
	p.SetClusterRole(clusterRole("reader"))
	p.DeleteRole("a", "local")
	check(t, p, alice, getPod, false, `RBAC: role.rbac.authorization.k8s.io "local" not found`)
	p.DeleteRoleBinding("a", "own")
	check(t, p, alice, getPod, false, "")
}

// TestAuthorize_changedClusterRoleBehindRoleBinding checks that a change of a ClusterRole is
// seen through a binding that did not change.
func TestAuthorize_changedClusterRoleBehindRoleBinding(t *testing.T) {
	p := New()
	p.SetClusterRole(clusterRole("view", readPods))
	p.SetRoleBinding(namespaceBinding("a", "viewers", "ClusterRole", "view",
		rbacv1.Subject{Kind: "Group", Name: "dev"}))
	check(t, p, person("bob", "dev"), getPod, true,
		`RBAC: allowed by RoleBinding "viewers/a" of ClusterRole "view" to Group "dev"`)
	if !p.SetClusterRole(clusterRole("view")) {
		t.Error("the change is not reported")
	}
	check(t, p, person("bob", "dev"), getPod, false, "")
}

func TestAuthorize_serviceAccounts(t *testing.T) {
	p := New()
	p.SetClusterRole(clusterRole("view", readPods))
	account := rbacv1.Subject{Kind: "ServiceAccount", Name: "robot"}
	p.SetRoleBinding(namespaceBinding("a", "own", "ClusterRole", "view", account))
	p.SetClusterRoleBinding(clusterBinding("homeless", "view", account))
	check(t, p, person("system:serviceaccount:a:robot"), getPod, true,
		`RBAC: allowed by RoleBinding "own/a" of ClusterRole "view" to ServiceAccount "robot/a"`)
	check(t, p, person("system:serviceaccount:b:robot"), getPod, false, "")
	account.Namespace = "b"
	p.SetClusterRoleBinding(clusterBinding("homeless", "view", account))
	check(t, p, person("system:serviceaccount:b:robot"), getPod, true,
		`RBAC: allowed by ClusterRoleBinding "homeless" of ClusterRole "view" to ServiceAccount "robot/b"`)
}

func TestPolicy_reportsChanges(t *testing.T) {
	p := New()
	step := func(what string, changed, want bool) {
		t.Helper()
		if changed != want {
			t.Errorf("%s: changed %v, want %v", what, changed, want)
		}
	}
	step("a role without a binding", p.SetClusterRole(clusterRole("view", readPods)), false)
	step("a binding", p.SetClusterRoleBinding(clusterBinding("b", "view", userSubject("alice"))), true)
	version, at := p.Version(), p.Changed()
	step("the same binding", p.SetClusterRoleBinding(clusterBinding("b", "view", userSubject("alice"))), false)
	step("the same role", p.SetClusterRole(clusterRole("view", readPods)), false)
	step("a role that does not exist", p.DeleteRole("a", "view"), false)
	expect.Equal(t, p.Version(), version)
	expect.Equal(t, p.Changed(), at)
	step("other rules", p.SetClusterRole(clusterRole("view")), true)
	step("another subject", p.SetClusterRoleBinding(clusterBinding("b", "view", userSubject("bob"))), true)
	step("no role", p.DeleteClusterRole("view"), true)
	step("no binding", p.DeleteClusterRoleBinding("b"), true)
	step("no binding again", p.DeleteClusterRoleBinding("b"), false)
	expect.Equal(t, p.Version(), version+4)
}

// TestPolicy_dropsEverything checks that nothing stays in the indexes of deleted objects.
func TestPolicy_dropsEverything(t *testing.T) {
	p := New()
	subjects := []rbacv1.Subject{
		userSubject("alice"),
		userSubject("alice"),
		{Kind: "Group", Name: "dev"},
		{Kind: "ServiceAccount", Name: "robot"},
		{Kind: "Robot"},
	}
	for i := range 10 {
		namespace, name := fmt.Sprint("n", i%3), fmt.Sprint("b", i)
		p.SetRole(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		p.SetClusterRole(clusterRole(name))
		for _, kind := range []string{"Role", "ClusterRole", "Other"} {
			p.SetRoleBinding(namespaceBinding(namespace, name+kind, kind, name, subjects...))
			p.SetRoleBinding(namespaceBinding(namespace, name+kind, kind, "missing", subjects[:3]...))
		}
		p.SetClusterRoleBinding(clusterBinding(name, "missing", subjects...))
	}
	roles, bindings := p.Size()
	expect.Equal(t, []int{roles, bindings}, []int{20, 40})
	for i := range 10 {
		namespace, name := fmt.Sprint("n", i%3), fmt.Sprint("b", i)
		p.DeleteRole(namespace, name)
		p.DeleteClusterRole(name)
		for _, kind := range []string{"Role", "ClusterRole", "Other"} {
			p.DeleteRoleBinding(namespace, name+kind)
		}
		p.DeleteClusterRoleBinding(name)
	}
	expect.Equal(t, []int{
		len(p.roles), len(p.clusterRoles), len(p.bindings), len(p.users), len(p.groups),
	}, []int{0, 0, 0, 0, 0})
}

// TestPolicy_changesAreAtomic replaces a binding again and again. Each of its states allows
// the request, so every decision must.
func TestPolicy_changesAreAtomic(t *testing.T) {
	p := New()
	p.SetClusterRole(clusterRole("one", readPods))
	p.SetClusterRole(clusterRole("two", readPods))
	p.SetClusterRoleBinding(clusterBinding("b", "one", userSubject("alice"), userSubject("bob")))
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if allowed, reason := p.Authorize(person("alice"), getPod); !allowed {
					t.Errorf("denied: %s", reason)
					return
				}
				runtime.Gosched()
			}
		})
	}
	for i := range 5000 {
		role := []string{"one", "two"}[i%2]
		p.SetClusterRoleBinding(clusterBinding("b", role, userSubject(fmt.Sprint(i)), userSubject("alice")))
	}
	close(stop)
	readers.Wait()
}

// BenchmarkAuthorize decides with 1,000 ClusterRoleBindings and 1,000 RoleBindings, of which
// the user has three by name and by group.
func BenchmarkAuthorize(b *testing.B) {
	p := New()
	for i := range 1000 {
		name := fmt.Sprint("team-", i)
		p.SetClusterRole(clusterRole(name, readPods, readPods, readPods, readPods))
		p.SetClusterRoleBinding(
			clusterBinding(name, name, rbacv1.Subject{Kind: "Group", Name: name}, userSubject("lead-"+name)),
		)
		p.SetRoleBinding(namespaceBinding(name, "readers", "ClusterRole", name,
			rbacv1.Subject{Kind: "Group", Name: "readers"}))
	}
	user := person("lead-team-7", "readers", "system:authenticated", "team-8", "other")
	allowed := getPod
	denied := replica.Attributes{
		Verb: "delete", IsResource: true, Version: "v1", Resource: "secrets", Namespace: "team-9", Name: "x",
	}
	for name, a := range map[string]replica.Attributes{"allowed": allowed, "denied": denied} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ok, _ := p.Authorize(user, a); ok != (name == "allowed") {
					b.Fatal(ok)
				}
			}
		})
	}
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		bindings := []*rbacv1.ClusterRoleBinding{
			clusterBinding("team-500", "team-1", userSubject("x"), userSubject("y")),
			clusterBinding("team-500", "team-2", userSubject("x"), userSubject("y")),
		}
		for i := 0; b.Loop(); i++ {
			p.SetClusterRoleBinding(bindings[i%2])
		}
	})
}

// TestMemory measures the costs that the comment of Policy states.
func TestMemory(t *testing.T) {
	const n = 20_000
	var before, after runtime.MemStats
	bindings := make([]*rbacv1.RoleBinding, n)
	for i := range bindings {
		bindings[i] = namespaceBinding(fmt.Sprint("ns-", i), "readers", "ClusterRole", "view",
			userSubject(fmt.Sprint("user-", i)), rbacv1.Subject{Kind: "Group", Name: "dev"})
	}
	p := New()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, b := range bindings {
		p.SetRoleBinding(b)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("a binding with two subjects: %d bytes besides the object", each)
	if each > 400 {
		t.Errorf("a binding with two subjects takes %d bytes", each)
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(bindings)
}
