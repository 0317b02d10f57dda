// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operatorsBatch is how many resources change at once, at most.
const operatorsBatch = 50

// operator is a model of one operator: the kinds that it caches, and the reads of one
// reconcile. docs/performance/README.md says where its source has them.
//
// Each reconcile is caused by a change of a resource of the first kind. Every resource has
// its turn before the first one has another, so a reconcile finds nothing that an earlier
// one of the same resource has left.
type operator struct {
	name  string
	kinds []cachedKind
	// reconciles is how many reconciles are measured, and warm how many come before.
	reconciles, warm int
	reconcile        func(ctx context.Context, r *operatorReads, key types.NamespacedName) error
}

// batch returns how many resources change at once: none of them twice.
func (o *operator) batch() int { return min(operatorsBatch, o.kinds[0].count) }

// measured returns how many reconciles are measured: whole batches.
func (o *operator) measured() int { return (o.reconciles + o.batch() - 1) / o.batch() * o.batch() }

// cachedKind is a kind in the cache of an operator.
type cachedKind struct {
	gvk schema.GroupVersionKind
	// count is the number of objects that the server has. make returns one.
	count int
	make  func(i int) client.Object
	// example and list are new empty values of the types that the operator reads.
	example func() client.Object
	list    func() client.ObjectList
	// cluster means that the kind has no namespaces.
	cluster bool
	// selector, if it is not empty, selects the objects that are cached. It applies to
	// all kinds of one cache with the same name, so such a kind can be in the second
	// cache of the operator.
	selector string
	second   bool
	// indexes are the names and functions of field indexes.
	indexes map[string]client.IndexerFunc
}

// plural returns the name of the resource.
func (k *cachedKind) plural() string {
	name := strings.ToLower(k.gvk.Kind)
	switch {
	case strings.HasSuffix(name, "s"):
		return name + "es"
	default:
		return name + "s"
	}
}

// inNamespaces returns identities of objects that are spread over n namespaces.
func inNamespaces(n int, prefix string, labels func(i int) map[string]string) func(i int) identity {
	return func(i int) identity {
		id := identity{namespace: operatorsNamespace(i % n), name: fmt.Sprintf("%s-%05d", prefix, i), target: fmt.Sprintf("target-%05d", i)}
		if labels != nil {
			id.labels = labels(i)
		}
		return id
	}
}

// kindOf returns a kind that is read as a Go type.
func kindOf[K any](apiVersion, kind string, count int, s shape, identify func(i int) identity) cachedKind {
	return cachedKind{
		gvk: schema.FromAPIVersionAndKind(apiVersion, kind), count: count, make: resource[K](s, identify),
		example: func() client.Object { return &custom[K]{} },
		list:    func() client.ObjectList { return &customList[K]{} },
	}
}

// looseKindOf returns a kind that is read as unstructured.
func looseKindOf(apiVersion, kind string, count int, s shape, identify func(i int) identity) cachedKind {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	return cachedKind{
		gvk: gvk, count: count, make: composed(apiVersion, kind, s, identify), cluster: true,
		example: func() client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u
		},
		list: func() client.ObjectList {
			u := &unstructured.UnstructuredList{}
			u.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
			return u
		},
	}
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// secretsOf returns secrets that are read as a Go type.
func secretsOf(count int, make func(i int) client.Object) cachedKind {
	return cachedKind{
		gvk: secretKind, count: count, make: make,
		example: func() client.Object { return &corev1.Secret{} },
		list:    func() client.ObjectList { return &corev1.SecretList{} },
	}
}

// metadataOf returns a kind of which only the metadata is read.
func metadataOf(gvk schema.GroupVersionKind, count int, make func(i int) client.Object) cachedKind {
	return cachedKind{
		gvk: gvk, count: count, make: make,
		example: func() client.Object {
			m := &metav1.PartialObjectMetadata{}
			m.SetGroupVersionKind(gvk)
			return m
		},
		list: func() client.ObjectList {
			m := &metav1.PartialObjectMetadataList{}
			m.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			return m
		},
	}
}

// Kinds of custom resources.
type (
	certificate         struct{}
	certificateRequest  struct{}
	externalSecret      struct{}
	secretStore         struct{}
	applicationSet      struct{}
	application         struct{}
	appProject          struct{}
	composition         struct{}
	compositionRevision struct{}
	functionRevision    struct{}
	prometheus          struct{}
	serviceMonitor      struct{}
	podMonitor          struct{}
	probe               struct{}
	scrapeConfig        struct{}
	prometheusRule      struct{}
)

// certManager is the six controllers of a Certificate that has been issued.
func certManager(percent int) operator {
	const managed, next = "controller.cert-manager.io/fao", "cert-manager.io/next-private-key"
	n := 3 * percent
	secrets := secret(4500, inNamespaces(n, "target", func(i int) map[string]string {
		switch {
		case i >= 10*n:
			return nil
		case i/n == 9 && i%5 == 0:
			return map[string]string{managed: "true", next: "true"}
		}
		return map[string]string{managed: "true"}
	}))
	full, rest := secretsOf(50*n, secrets), metadataOf(secretKind, 50*n, secrets)
	full.selector, full.second, rest.selector = managed+"=true", true, "!"+managed
	requests := func(i int) identity {
		return identity{namespace: operatorsNamespace(i / 2 % n), name: fmt.Sprintf("certificate-%05d-%d", i/2, i%2), target: fmt.Sprintf("certificate-%05d", i/2)}
	}
	return operator{
		name: "cert-manager", reconciles: 20 * percent, warm: 2 * percent,
		kinds: []cachedKind{
			kindOf[certificate]("cert-manager.io/v1", "Certificate", 10*n, shape{settings: 8, entries: 3}, inNamespaces(n, "certificate", nil)),
			kindOf[certificateRequest]("cert-manager.io/v1", "CertificateRequest", 20*n, shape{settings: 4, random: 4000}, requests),
			full, rest,
		},
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			var crt custom[certificate]
			ours := client.InNamespace(key.Namespace)
			data := func() {
				r.getSelected(types.NamespacedName{Namespace: key.Namespace, Name: crt.Spec.Target}, &corev1.Secret{})
				r.list(&customList[certificateRequest]{}, ours)
				r.list(&customList[certificateRequest]{}, ours)
			}
			r.get(key, &crt) // trigger
			r.list(&customList[certificate]{}, ours)
			data()
			r.get(key, &crt) // issuing
			r.getSelected(types.NamespacedName{Namespace: key.Namespace, Name: crt.Spec.Target}, &corev1.Secret{})
			r.get(key, &crt) // keymanager
			r.listSelected(&corev1.SecretList{}, ours, client.HasLabels{next})
			r.list(rest.list(), ours, client.HasLabels{next})
			r.get(key, &crt) // requestmanager
			r.get(key, &crt) // readiness
			data()
			r.get(key, &crt) // revisionmanager
			r.list(&customList[certificateRequest]{}, ours)
			return r.err
		},
	}
}

// externalSecrets is the reconcile of an ExternalSecret that is refreshed.
func externalSecrets(percent int) operator {
	const managed, owner, target = "reconcile.external-secrets.io/managed", "reconcile.external-secrets.io/created-by", "spec.target.name"
	n := 3 * percent
	ownerOf := func(i int) string { return fmt.Sprintf("%056x", uint64(i)*0x9e3779b97f4a7c15) }
	secrets := secret(1500, inNamespaces(n, "target", func(i int) map[string]string {
		if i >= 20*n {
			return nil
		}
		return map[string]string{managed: "true", owner: ownerOf(i)}
	}))
	full, metadata := secretsOf(50*n, secrets), metadataOf(secretKind, 50*n, secrets)
	full.selector, full.second = managed+"=true", true
	external := kindOf[externalSecret]("external-secrets.io/v1", "ExternalSecret", 20*n, shape{settings: 5, entries: 4}, inNamespaces(n, "external", nil))
	external.indexes = map[string]client.IndexerFunc{target: func(o client.Object) []string { return []string{o.(*custom[externalSecret]).Spec.Target} }}
	return operator{
		name: "external-secrets", reconciles: 60 * percent, warm: 6 * percent,
		kinds: []cachedKind{
			external,
			kindOf[secretStore]("external-secrets.io/v1", "SecretStore", n, shape{settings: 12}, inNamespaces(n, "store", nil)),
			metadata, full,
		},
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			var es custom[externalSecret]
			r.get(key, &es)
			i := numberOf(key.Name)
			to := types.NamespacedName{Namespace: key.Namespace, Name: es.Spec.Target}
			store := types.NamespacedName{Namespace: key.Namespace, Name: fmt.Sprintf("store-%05d", i%n)}
			r.get(store, &custom[secretStore]{}) // shouldSkipUnmanagedStore
			r.get(to, metadata.example())
			r.getSelected(to, &corev1.Secret{})
			r.get(store, &custom[secretStore]{}) // the client of the provider
			r.list(metadata.list(), client.InNamespace(key.Namespace), client.MatchingLabels{owner: ownerOf(i)})
			// The secret was written, and its event is mapped to this resource.
			r.list(&customList[externalSecret]{}, client.InNamespace(key.Namespace), client.MatchingFields{target: es.Spec.Target})
			return r.err
		},
	}
}

// argoCD is the reconcile of an ApplicationSet with a generator of clusters.
func argoCD(percent int) operator {
	const namespace, typeLabel, controller, apps = "argocd", "argocd.argoproj.io/secret-type", ".metadata.controller", 30
	sets := 2 * percent
	in := func(prefix string, each int, labels func(i int) map[string]string) func(i int) identity {
		return func(i int) identity {
			id := identity{namespace: namespace, name: fmt.Sprintf("%s-%05d", prefix, i), target: fmt.Sprintf("set-%05d", i/each)}
			if labels != nil {
				id.labels = labels(i)
			}
			return id
		}
	}
	types4 := []string{"cluster", "repository", "repo-creds", "settings"}
	secrets := secret(2000, in("secret", 1, func(i int) map[string]string {
		return map[string]string{typeLabel: types4[i%4], "environment": fmt.Sprintf("environment-%d", i/4%8), "app.kubernetes.io/part-of": "argocd"}
	}))
	application30 := kindOf[application]("argoproj.io/v1alpha1", "Application", apps*sets, shape{settings: 6, entries: 3, reported: 25}, in("app", apps, nil))
	application30.indexes = map[string]client.IndexerFunc{controller: func(o client.Object) []string { return []string{o.(*custom[application]).Spec.Target} }}
	projects := max(1, percent*6/10)
	return operator{
		name: "Argo CD", reconciles: 6 * percent, warm: max(1, percent/2),
		kinds: []cachedKind{
			kindOf[applicationSet]("argoproj.io/v1alpha1", "ApplicationSet", sets, shape{settings: 10, entries: 4, reported: apps}, in("set", 1, nil)),
			application30,
			kindOf[appProject]("argoproj.io/v1alpha1", "AppProject", projects, shape{settings: 5, entries: 15}, in("project", 1, nil)),
			secretsOf(10*percent, secrets),
		},
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			i := numberOf(key.Name)
			current := func() {
				r.list(&customList[application]{}, client.MatchingFields{controller: key.Name}, client.InNamespace(namespace))
			}
			r.get(key, &custom[applicationSet]{})
			r.list(&corev1.SecretList{}, client.InNamespace(namespace),
				client.MatchingLabels{typeLabel: "cluster", "environment": fmt.Sprintf("environment-%d", i%8)})
			for range apps { // validateGeneratedApplications
				r.get(types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("project-%05d", i%projects)}, &custom[appProject]{})
			}
			current()
			for k := range apps { // createOrUpdateInCluster
				r.get(types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("app-%05d", i*apps+k)}, &custom[application]{})
			}
			current() // deleteInCluster
			current() // the status of the resources
			return r.err
		},
	}
}

// numberOf returns the number at the end of a name.
func numberOf(name string) int {
	n := 0
	_, _ = fmt.Sscanf(name[strings.LastIndexByte(name, '-')+1:], "%d", &n) // all names have one
	return n
}
