// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package oracle

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/replica"
)

var (
	cases = flag.Int("cases", 100_000, "how many requests are compared")
	seed  = flag.Uint64("seed", 0, "the seed of the first policy; 0 chooses one")
)

const (
	casesPerPolicy = 1000
	casesPerChange = 50
)

// TestAuthorize_equalsUpstream compares decisions and reasons.
func TestAuthorize_equalsUpstream(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	start := time.Now()
	var total tally
	for policy := range uint64((*cases + casesPerPolicy - 1) / casesPerPolicy) {
		if !comparePolicy(t, first+policy, &total) {
			t.Fatalf("run it again with -seed %d -cases %d", first+policy, casesPerPolicy)
		}
	}
	t.Logf("seed %d: %d requests equal (%d allowed, %d denied, %d of these with missing roles), %d rule lists, %d "+
		"changes, in %s",
		first, total.allowed+total.denied, total.allowed, total.denied, total.missing, total.rules, total.changes,
		time.Since(start).Round(time.Millisecond))
	if n := total.allowed + total.denied; total.allowed < n/10 || total.denied < n/10 || total.missing < n/100 {
		t.Error("the random policies do not have enough decisions of each kind to prove something")
	}
}

// tally counts comparisons.
type tally struct{ allowed, denied, missing, rules, changes int }

// pair holds the same objects for both.
type pair struct {
	generator
	ours *rbac.Policy

	roles, clusterRoles, roleBindings, clusterRoleBindings cache.Indexer

	theirs   *upstream.RBACAuthorizer
	resolver *validation.DefaultRuleResolver
}

func newPair(seed uint64) *pair {
	store := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		})
	}
	p := &pair{
		generator: generator{rand.New(rand.NewPCG(seed, 1))}, ours: rbac.New(),
		roles: store(), clusterRoles: store(), roleBindings: store(), clusterRoleBindings: store(),
	}
	roles := &upstream.RoleGetter{Lister: rbaclisters.NewRoleLister(p.roles)}
	bindings := &upstream.RoleBindingLister{Lister: rbaclisters.NewRoleBindingLister(p.roleBindings)}
	clusterRoles := &upstream.ClusterRoleGetter{Lister: rbaclisters.NewClusterRoleLister(p.clusterRoles)}
	clusterBindings := &upstream.ClusterRoleBindingLister{
		Lister: rbaclisters.NewClusterRoleBindingLister(p.clusterRoleBindings),
	}
	p.theirs = upstream.New(roles, bindings, clusterRoles, clusterBindings)
	p.resolver = validation.NewDefaultRuleResolver(roles, bindings, clusterRoles, clusterBindings)
	return p
}

// comparePolicy compares requests while one policy grows and changes.
func comparePolicy(t *testing.T, seed uint64, total *tally) bool {
	p := newPair(seed)
	for range p.IntN(200) {
		p.change()
	}
	for i := range casesPerPolicy {
		if i%casesPerChange == 0 {
			p.change()
			total.changes++
		}
		who, a := p.user(), p.attributes()
		if problem := p.compare(who, a, total); problem != "" {
			t.Errorf("seed %d, request %d: %s\nuser %q groups %q\nattributes %+v", seed, i, problem, who.Username,
				who.Groups, a)
			return false
		}
		if i%20 == 0 {
			total.rules++
			if problem := p.compareRules(who, a.Namespace); problem != "" {
				t.Errorf("seed %d, rules of request %d: %s\nuser %q groups %q namespace %q", seed, i, problem,
					who.Username, who.Groups, a.Namespace)
				return false
			}
		}
	}
	return true
}

// change sets or deletes one object in both.
func (p *pair) change() {
	remove := p.chance(20)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	switch p.IntN(4) {
	case 0:
		o := &rbacv1.Role{ObjectMeta: p.meta(true, roleNames), Rules: p.rules()}
		if remove {
			p.ours.DeleteRole(o.Namespace, o.Name)
			check(p.roles.Delete(o))
			return
		}
		p.ours.SetRole(o)
		check(p.roles.Update(o))
	case 1:
		o := p.clusterRole()
		if remove {
			p.ours.DeleteClusterRole(o.Name)
			check(p.clusterRoles.Delete(o))
			return
		}
		p.ours.SetClusterRole(o)
		check(p.clusterRoles.Update(o))
	case 2:
		o := &rbacv1.RoleBinding{ObjectMeta: p.meta(true, bindingNames), RoleRef: p.roleRef(), Subjects: p.subjects()}
		if remove {
			p.ours.DeleteRoleBinding(o.Namespace, o.Name)
			check(p.roleBindings.Delete(o))
			return
		}
		p.ours.SetRoleBinding(o)
		check(p.roleBindings.Update(o))
	case 3:
		o := &rbacv1.ClusterRoleBinding{
			ObjectMeta: p.meta(false, bindingNames), RoleRef: p.roleRef(), Subjects: p.subjects(),
		}
		if remove {
			p.ours.DeleteClusterRoleBinding(o.Name)
			check(p.clusterRoleBindings.Delete(o))
			return
		}
		p.ours.SetClusterRoleBinding(o)
		check(p.clusterRoleBindings.Update(o))
	}
}

// compare compares one decision and returns how it differs.
func (p *pair) compare(who *authenticationv1.UserInfo, a replica.Attributes, total *tally) string {
	ctx := context.Background()
	subject := &user.DefaultInfo{Name: who.Username, Groups: who.Groups}
	record := authorizer.AttributesRecord{
		User: subject, Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.Group, APIVersion: a.Version,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, ResourceRequest: a.IsResource, Path: a.Path,
	}
	decision, want, err := p.theirs.Authorize(ctx, record)
	if err != nil {
		return err.Error()
	}
	allowed, reason := p.ours.Authorize(who, a)
	switch {
	case allowed != (decision == authorizer.DecisionAllow):
		return fmt.Sprintf("allowed %v (%s), upstream %v (%s)", allowed, reason, decision, want)
	case allowed:
		total.allowed++
		if reason == want {
			return ""
		}
		reasons := p.reasons(subject, record)
		if !slices.Contains(reasons, reason) {
			return fmt.Sprintf("reason %s, upstream has %s", reason, strings.Join(reasons, " or "))
		}
	default:
		total.denied++
		if want != "" {
			total.missing++
		}
		if got, want := asSet(reason), asSet(want); !slices.Equal(got, want) {
			return fmt.Sprintf("reason %q, upstream %q", got, want)
		}
	}
	return ""
}

// reasons returns all reasons that upstream could give for an allowed request.
func (p *pair) reasons(subject user.Info, record authorizer.AttributesRecord) []string {
	cluster, own := []string{}, []string{}
	p.resolver.VisitRulesFor(context.Background(), subject, record.Namespace,
		func(source fmt.Stringer, rule *rbacv1.PolicyRule, _ error) bool {
			if rule != nil && upstream.RuleAllows(record, rule) {
				text := "RBAC: allowed by " + source.String()
				if strings.HasPrefix(source.String(), "ClusterRoleBinding ") {
					cluster = append(cluster, text)
				} else {
					own = append(own, text)
				}
			}
			return true
		})
	// ClusterRoleBindings are visited first.
	if len(cluster) > 0 {
		return cluster
	}
	return own
}

// asSet splits a reason of a denial.
func asSet(reason string) []string {
	text, isRBAC := strings.CutPrefix(reason, "RBAC: ")
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	return append(slices.Sorted(strings.SplitSeq(text, ", ")), fmt.Sprint(isRBAC))
}

// compareRules compares the rules of a user in a namespace and returns how they differ.
func (p *pair) compareRules(who *authenticationv1.UserInfo, namespace string) string {
	resources, others, incomplete, err := p.theirs.RulesFor(context.Background(),
		&user.DefaultInfo{Name: who.Username, Groups: who.Groups}, namespace)
	var want []string
	for _, r := range resources {
		want = append(want, text(authorizationv1.ResourceRule{
			Verbs:         r.GetVerbs(),
			APIGroups:     r.GetAPIGroups(),
			Resources:     r.GetResources(),
			ResourceNames: r.GetResourceNames(),
		}))
	}
	for _, r := range others {
		want = append(want, text(authorizationv1.NonResourceRule{
			Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs(),
		}))
	}
	status := p.ours.Rules(who, namespace)
	var got []string
	for _, r := range status.ResourceRules {
		got = append(got, text(r))
	}
	for _, r := range status.NonResourceRules {
		got = append(got, text(r))
	}
	slices.Sort(got)
	slices.Sort(want)
	evaluation := ""
	if err != nil {
		evaluation = err.Error()
	}
	switch {
	case !slices.Equal(got, want):
		return fmt.Sprintf("rules %s, upstream %s", got, want)
	case !slices.Equal(asSet(status.EvaluationError), asSet(evaluation)):
		return fmt.Sprintf("error %q, upstream %q", status.EvaluationError, evaluation)
	case status.Incomplete != incomplete:
		return fmt.Sprintf("incomplete %v, upstream %v", status.Incomplete, incomplete)
	}
	return ""
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
