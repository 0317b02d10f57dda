// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

const (
	// reviewsAtOnce limits how many rights of a cluster are reviewed at once.
	reviewsAtOnce = 8
	// maxListed limits how many resources a message lists.
	maxListed = 8
)

// authentication checks that the API server accepts the credentials. It reports whether it
// does.
func (i *inspection) authentication(ctx context.Context) bool {
	clients, err := newReviewClients(i.cluster)
	if err != nil {
		i.bad(checkAuthentication, string(fleet.NoCredentials), rootOf(err))
		return false
	}
	i.clients = clients
	review, err := clients.authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	switch reason := fleet.TroubleOf(err); reason {
	case "":
		i.about.User = review.Status.UserInfo.Username
		i.good(checkAuthentication, "the user is "+i.about.User)
	case fleet.Unauthorized:
		i.bad(checkAuthentication, string(reason), "the API server does not accept the credentials")
		return false
	case fleet.NotServed, fleet.Forbidden: // older than Kubernetes 1.28, or not allowed
		i.good(checkAuthentication, "accepted; the API server does not tell the name of the user")
	default:
		i.bad(checkAuthentication, string(reason), rootOf(err))
		return false
	}
	return true
}

// resources checks discovery, and the rights to read the resources that serve would mirror.
func (i *inspection) resources(ctx context.Context) {
	served, err := i.cluster.Resources(ctx)
	if len(served) == 0 {
		message := "the cluster serves nothing"
		if err != nil {
			message = rootOf(err)
		}
		i.bad(checkDiscovery, string(fleet.TroubleOf(err)), message)
		return
	}
	mirrored, metadata, selected := i.opts.Fleet.Selected(served)
	switch absent := i.absent(served); {
	case selected != nil:
		i.bad(checkDiscovery, string(fleet.Failed), selected.Error())
		return
	case len(absent) > 0:
		i.bad(checkDiscovery, string(fleet.NotServed), "the cluster does not serve "+listed(absent), absent...)
	case err != nil:
		i.problem(Warning, checkDiscovery, string(fleet.Failed), "some groups cannot be read: "+rootOf(err))
	default:
		i.good(checkDiscovery, fmt.Sprintf("%d resources to mirror", len(mirrored)))
	}
	i.permissions(ctx, slices.Concat(mirrored, metadata))
	i.reviews(ctx)
	i.callers(ctx)
	if i.opts.GroupCluster == i.entry.Name {
		i.group(ctx)
	}
	if i.opts.Observe > 0 && len(mirrored) > 0 {
		// A watch begins with all objects, and there are few namespaces.
		at := max(0, slices.IndexFunc(mirrored, func(r kube.Resource) bool {
			return r.GroupResource() == schema.GroupResource{Resource: "namespaces"}
		}))
		i.stability(ctx, mirrored[at])
	}
}

// stability checks that a watch of a resource stays open for a while.
func (i *inspection) stability(ctx context.Context, r kube.Resource) {
	ctx, cancel := context.WithTimeout(ctx, i.opts.Observe)
	defer cancel()
	began := time.Now()
	for _, err := range i.cluster.Watch(ctx, kube.Query{
		Resource: r.GroupVersionResource, Namespace: i.namespace(r), MetadataOnly: true,
	}, "") {
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case fleet.TroubleOf(err) == fleet.Forbidden:
			return // the check of the rights has reported it
		}
		i.bad(checkStability, fleet.Flapping,
			fmt.Sprintf("a watch of %s broke after %s: %s", r.GroupResource(),
				time.Since(began).Round(time.Millisecond), rootOf(err)))
		return
	}
	if ctx.Err() == nil {
		i.bad(checkStability, fleet.Flapping,
			fmt.Sprintf("a watch of %s ended after %s", r.GroupResource(), time.Since(began).Round(time.Millisecond)))
		return
	}
	i.good(checkStability, fmt.Sprintf("a watch stayed open for %s", i.opts.Observe))
}

// namespace returns the namespace to read of a resource, "" for all.
func (i *inspection) namespace(r kube.Resource) string {
	if !r.Namespaced {
		return ""
	}
	return i.scope().Namespace
}

// scope returns which objects of the cluster are mirrored.
func (i *inspection) scope() fleet.Scope {
	if i.entry.Scope != nil {
		return *i.entry.Scope
	}
	return i.opts.Fleet.Scope
}

// absent returns the resources that the user has named and the cluster does not serve.
func (i *inspection) absent(served []kube.Resource) (names []string) {
	for _, pattern := range i.opts.Named {
		if strings.Contains(pattern, "*") {
			continue
		}
		named := schema.ParseGroupResource(pattern)
		if !slices.ContainsFunc(served, func(r kube.Resource) bool { return r.GroupResource() == named }) {
			names = append(names, pattern)
		}
	}
	return names
}

// right is the right to do something with a resource.
type right struct {
	verb     string
	resource schema.GroupResource
}

// permissions checks the rights to list and watch resources.
func (i *inspection) permissions(ctx context.Context, resources []kube.Resource) {
	namespace := i.scope().Namespace
	every := schema.GroupResource{Group: "*", Resource: "*"}
	missing, err := i.missing(ctx, namespace, []right{{"list", every}, {"watch", every}})
	if err == nil && len(missing) > 0 {
		var rights []right
		for _, r := range resources {
			rights = append(rights, right{"list", r.GroupResource()}, right{"watch", r.GroupResource()})
		}
		missing, err = i.missing(ctx, namespace, rights)
	}
	switch {
	case err != nil:
		i.bad(checkPermissions, string(fleet.TroubleOf(err)), "review of own rights: "+rootOf(err))
	case len(missing) > 0:
		names, text := describeMissing(missing)
		i.bad(checkPermissions, string(fleet.Forbidden), text, names...)
	default:
		i.good(checkPermissions, fmt.Sprintf("may list and watch all %d resources", len(resources)))
	}
}

// describeMissing returns the resources of rights, and a text about them.
func describeMissing(missing []right) (names []string, text string) {
	verbs := map[string][]string{}
	for _, m := range missing {
		name := m.resource.String()
		if verbs[name] == nil {
			names = append(names, name)
		}
		verbs[name] = append(verbs[name], m.verb)
	}
	byVerbs := map[string][]string{}
	for _, name := range names {
		key := strings.Join(verbs[name], " and ")
		byVerbs[key] = append(byVerbs[key], name)
	}
	var parts []string
	for _, key := range []string{"list and watch", "list", "watch"} {
		if len(byVerbs[key]) > 0 {
			parts = append(parts, key+" "+listed(byVerbs[key]))
		}
	}
	return names, "may not " + strings.Join(parts, ", nor ")
}

// listed returns names as a text, and the number of the last ones if there are many.
func listed(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// reviews checks the rights to authenticate and authorize callers. The owner and the user
// whose credentials serve has do not need them.
func (i *inspection) reviews(ctx context.Context) {
	missing, err := i.missing(ctx, "", []right{
		{"create", schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}},
		{"create", schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}},
	})
	var names []string
	for _, m := range missing {
		names = append(names, m.resource.String())
	}
	switch {
	case err != nil:
		i.bad(checkReviews, string(fleet.TroubleOf(err)), "review of own rights: "+rootOf(err))
	case len(missing) > 0 && i.opts.Open:
		i.bad(checkReviews, remedy.ReviewsForbidden,
			"may not create "+listed(names)+", so no other user than that of serve has access", names...)
	case len(missing) > 0:
		i.problem(Warning, checkReviews, remedy.ReviewsForbidden,
			"may not create "+listed(names)+", so only the owner of the server, and the user of serve, have access",
			names...)
	default:
		i.good(checkReviews, "may authenticate and authorize callers")
	}
}

// callers checks that the API server authenticates callers by their own tokens. Without that, their
// requests are not passed on, and tokens can be checked only by TokenReviews.
func (i *inspection) callers(ctx context.Context) {
	err := i.cluster.CheckCallers(ctx)
	outcome := Warning
	if i.opts.PassThrough {
		outcome = Bad
	}
	switch {
	case err == nil:
		i.good(checkCallers, "the address tells callers apart by their tokens")
	case errors.Is(err, kube.ErrIndistinctCallers):
		i.problem(outcome, checkCallers, remedy.IndistinctCallers, rootOf(err))
	default:
		i.problem(outcome, checkCallers, string(fleet.TroubleOf(err)), rootOf(err))
	}
}

// group checks the rights to the Leases of the replica group.
func (i *inspection) group(ctx context.Context) {
	var rights []right
	for _, verb := range []string{"get", "list", "create", "update", "delete"} {
		rights = append(rights, right{verb, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}})
	}
	missing, err := i.missing(ctx, i.opts.GroupNamespace, rights)
	var verbs []string
	for _, m := range missing {
		verbs = append(verbs, m.verb)
	}
	switch {
	case err != nil:
		i.bad(checkGroup, string(fleet.TroubleOf(err)), "review of own rights: "+rootOf(err))
	case len(missing) > 0:
		i.bad(checkGroup, remedy.LeaseNotRenewed, fmt.Sprintf("may not %s leases in namespace %s",
			strings.Join(verbs, ", "), i.opts.GroupNamespace))
	default:
		i.good(checkGroup, "may hold a Lease of the replica group in namespace "+i.opts.GroupNamespace)
	}
}

// missing returns the rights that the credentials do not have, in their order.
func (i *inspection) missing(ctx context.Context, namespace string, rights []right) ([]right, error) {
	var (
		mu      sync.Mutex
		denied  = make([]bool, len(rights))
		failure error
	)
	workqueue.ParallelizeUntil(context.Background(), reviewsAtOnce, len(rights), func(n int) {
		allowed, err := i.may(ctx, namespace, rights[n])
		mu.Lock()
		defer mu.Unlock()
		denied[n] = !allowed
		if err != nil {
			failure = err
		}
	})
	var all []right
	for n, r := range rights {
		if denied[n] {
			all = append(all, r)
		}
	}
	return all, failure
}

// may asks the API server whether the credentials have a right.
func (i *inspection) may(ctx context.Context, namespace string, r right) (bool, error) {
	review, err := i.clients.authorization.SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.resource.Group, Resource: r.resource.Resource, Namespace: namespace,
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
