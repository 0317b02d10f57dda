// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package operators

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
// its turn before the first one has another.
type operator struct {
	name  string
	kinds []cachedKind
	// reconciles is how many reconciles are measured.
	reconciles int
	reconcile  func(ctx context.Context, r *operatorReads, key types.NamespacedName) error
}

// batch returns how many resources change at once: none of them twice.
func (o *operator) batch() int { return min(operatorsBatch, o.kinds[0].count) }

// warm returns how many reconciles come before those that are measured: each resource has two
// turns, so that the caches have what they keep of an operator that works at full speed.
func (o *operator) warm() int { return 2 * o.kinds[0].count }

// measured returns how many reconciles are measured: whole batches.
func (o *operator) measured() int { return (o.reconciles + o.batch() - 1) / o.batch() * o.batch() }

// operatorReads are the reads of reconciles. After an error they do nothing.
type operatorReads struct {
	ctx context.Context
	// main and selected are the two caches of the operator.
	main, selected client.Reader
	err            error
	// seen has the objects that were read, nil if they are not recorded.
	seen map[string]bool
	// gets and lists count reads, and objects those that lists returned.
	gets, lists, objects int
}

func (r *operatorReads) get(key types.NamespacedName, into client.Object) {
	r.getFrom(r.main, key, into)
}

func (r *operatorReads) getFrom(c client.Reader, key types.NamespacedName, into client.Object) {
	if r.err == nil {
		r.gets++
		r.err = c.Get(r.ctx, key, into)
		r.saw(into)
	}
}

func (r *operatorReads) list(into client.ObjectList, opts ...client.ListOption) {
	r.listFrom(r.main, into, opts...)
}

func (r *operatorReads) listFrom(c client.Reader, into client.ObjectList, opts ...client.ListOption) {
	if r.err == nil {
		r.lists++
		r.err = c.List(r.ctx, into, opts...)
		r.objects += meta.LenList(into)
		if r.err == nil && r.seen != nil {
			r.err = meta.EachListItem(into, func(o runtime.Object) error {
				r.saw(o.(client.Object))
				return nil
			})
		}
	}
}

// saw records that an object was read.
func (r *operatorReads) saw(o client.Object) {
	if r.seen != nil {
		kind := o.GetObjectKind().GroupVersionKind().Kind
		r.seen[fmt.Sprintf("%T %s %s", o, kind, client.ObjectKeyFromObject(o))] = true
	}
}

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
		id := identity{
			namespace: operatorsNamespace(i % n),
			name:      fmt.Sprintf("%s-%05d", prefix, i),
			target:    fmt.Sprintf("target-%05d", i),
		}
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
		return identity{
			namespace: operatorsNamespace(i / 2 % n),
			name:      fmt.Sprintf("certificate-%05d-%d", i/2, i%2),
			target:    fmt.Sprintf("certificate-%05d", i/2),
		}
	}
	return operator{
		name: "cert-manager", reconciles: 20 * percent,
		kinds: []cachedKind{
			kindOf[certificate]("cert-manager.io/v1", "Certificate", 10*n, shape{settings: 8, entries: 3},
				inNamespaces(n, "certificate", nil)),
			kindOf[certificateRequest]("cert-manager.io/v1", "CertificateRequest", 20*n,
				shape{settings: 4, random: 4000}, requests),
			full, rest,
		},
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			var crt custom[certificate]
			ours := client.InNamespace(key.Namespace)
			data := func() {
				r.getFrom(r.selected, types.NamespacedName{Namespace: key.Namespace, Name: crt.Spec.Target},
					&corev1.Secret{})
				r.list(&customList[certificateRequest]{}, ours)
				r.list(&customList[certificateRequest]{}, ours)
			}
			r.get(key, &crt) // trigger
			r.list(&customList[certificate]{}, ours)
			data()
			r.get(key, &crt) // issuing
			r.getFrom(r.selected, types.NamespacedName{Namespace: key.Namespace, Name: crt.Spec.Target},
				&corev1.Secret{})
			r.get(key, &crt) // keymanager
			r.listFrom(r.selected, &corev1.SecretList{}, ours, client.HasLabels{next})
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
	const managed, owner, target = "reconcile.external-secrets.io/managed", "reconcile.external-secrets.io/created-by",
		"spec.target.name"
	n := 3 * percent
	ownerOf := func(i int) string { return fmt.Sprintf("%056x", uint64(i)*0x9e3779b97f4a7c15) }
	secrets := secret(1500, inNamespaces(n, "target", func(i int) map[string]string {
		if i >= 20*n {
			return nil
		}
		return map[string]string{managed: "true", owner: ownerOf(i)}
	}))
	full := secretsOf(50*n, secrets)
	metadata := metadataOf(secretKind, 50*n, secrets)
	full.selector, full.second = managed+"=true", true
	external := kindOf[externalSecret]("external-secrets.io/v1", "ExternalSecret", 20*n, shape{settings: 5, entries: 4},
		inNamespaces(n, "external", nil))
	external.indexes = map[string]client.IndexerFunc{
		target: func(o client.Object) []string { return []string{o.(*custom[externalSecret]).Spec.Target} },
	}
	return operator{
		name: "external-secrets", reconciles: 60 * percent,
		kinds: []cachedKind{
			external,
			kindOf[secretStore]("external-secrets.io/v1", "SecretStore", n, shape{settings: 12},
				inNamespaces(n, "store", nil)),
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
			r.getFrom(r.selected, to, &corev1.Secret{})
			r.get(store, &custom[secretStore]{}) // the client of the provider
			r.list(metadata.list(), client.InNamespace(key.Namespace), client.MatchingLabels{owner: ownerOf(i)})
			// The secret was written, and its event is mapped to this resource.
			r.list(&customList[externalSecret]{}, client.InNamespace(key.Namespace),
				client.MatchingFields{target: es.Spec.Target})
			return r.err
		},
	}
}

// argoCD is the reconcile of an ApplicationSet with a generator of clusters.
func argoCD(percent int) operator {
	const namespace, typeLabel, controller = "argocd", "argocd.argoproj.io/secret-type", ".metadata.controller"
	const apps = 30
	sets := 2 * percent
	in := func(prefix string, each int, labels func(i int) map[string]string) func(i int) identity {
		name := numbered(prefix, labels)
		return func(i int) identity {
			id := name(i)
			id.namespace = namespace
			id.target = fmt.Sprintf("set-%05d", i/each)
			return id
		}
	}
	types4 := []string{"cluster", "repository", "repo-creds", "settings"}
	secrets := secret(2000, in("secret", 1, func(i int) map[string]string {
		return map[string]string{
			typeLabel:                   types4[i%4],
			"environment":               fmt.Sprintf("environment-%d", i/4%8),
			"app.kubernetes.io/part-of": "argocd",
		}
	}))
	application30 := kindOf[application]("argoproj.io/v1alpha1", "Application", apps*sets,
		shape{settings: 6, entries: 3, reported: 25}, in("app", apps, nil))
	application30.indexes = map[string]client.IndexerFunc{
		controller: func(o client.Object) []string { return []string{o.(*custom[application]).Spec.Target} },
	}
	projects := max(1, percent*6/10)
	return operator{
		name: "Argo CD", reconciles: 6 * percent,
		kinds: []cachedKind{
			kindOf[applicationSet]("argoproj.io/v1alpha1", "ApplicationSet", sets,
				shape{settings: 10, entries: 4, reported: apps}, in("set", 1, nil)),
			application30,
			kindOf[appProject]("argoproj.io/v1alpha1", "AppProject", projects, shape{settings: 5, entries: 15},
				in("project", 1, nil)),
			secretsOf(10*percent, secrets),
		},
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			i := numberOf(key.Name)
			current := func() {
				r.list(&customList[application]{}, client.MatchingFields{controller: key.Name},
					client.InNamespace(namespace))
			}
			r.get(key, &custom[applicationSet]{})
			r.list(&corev1.SecretList{}, client.InNamespace(namespace),
				client.MatchingLabels{typeLabel: "cluster", "environment": fmt.Sprintf("environment-%d", i%8)})
			for range apps { // validateGeneratedApplications
				project := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("project-%05d", i%projects)}
				r.get(project, &custom[appProject]{})
			}
			current()
			for k := range apps { // createOrUpdateInCluster
				r.get(types.NamespacedName{
					Namespace: namespace, Name: fmt.Sprintf("app-%05d", i*apps+k),
				}, &custom[application]{})
			}
			current() // deleteInCluster
			current() // the status of the resources
			return r.err
		},
	}
}

// numbered returns identities with the number at the end of the name, and with labels unless that is nil.
func numbered(prefix string, labels func(i int) map[string]string) func(i int) identity {
	return func(i int) identity {
		id := identity{name: fmt.Sprintf("%s-%05d", prefix, i)}
		if labels != nil {
			id.labels = labels(i)
		}
		return id
	}
}

// numberOf returns the number at the end of a name.
func numberOf(name string) int {
	n := 0
	_, _ = fmt.Sscanf(name[strings.LastIndexByte(name, '-')+1:], "%d", &n) // all names have one
	return n
}

// operators returns the models with a percentage of the objects and reconciles of the
// whole benchmark.
func operators(percent int) []operator {
	return []operator{
		certManager(percent), externalSecrets(percent), argoCD(percent), crossplane(percent),
		prometheusOperator(percent),
	}
}

// crossplane is the reconcile of a composite resource with ten composed resources and a
// pipeline of three functions.
func crossplane(percent int) operator {
	const compositionLabel, packageLabel = "crossplane.io/composition-name", "pkg.crossplane.io/package"
	const system = "crossplane-system"
	const compositions, functions, each = 30, 12, 5
	xrs := 15 * percent
	composite := func(i int) map[string]string {
		return map[string]string{"crossplane.io/composite": fmt.Sprintf("xr-%05d", i/each)}
	}
	global := func(k cachedKind) cachedKind { k.cluster = true; return k }
	const core, packages = "apiextensions.crossplane.io/v1", "pkg.crossplane.io/v1"
	kinds := []cachedKind{
		looseKindOf("example.crossplane.io/v1", "Database", xrs, shape{settings: 8, reported: 2 * each},
			numbered("xr", nil)),
		looseKindOf("storage.example.io/v1", "Bucket", each*xrs, shape{settings: 15, entries: 4, reported: 3},
			numbered("bucket", composite)),
		looseKindOf("compute.example.io/v1", "Instance", each*xrs, shape{settings: 20, entries: 4, reported: 3},
			numbered("instance", composite)),
		looseKindOf("apiextensions.crossplane.io/v1beta1", "EnvironmentConfig", 2*percent, shape{settings: 30},
			numbered("config", nil)),
		global(kindOf[composition](core, "Composition", compositions, shape{settings: 5, entries: 40},
			numbered("composition", nil))),
		global(kindOf[compositionRevision](core, "CompositionRevision", 4*compositions, shape{settings: 5, entries: 40},
			numbered("revision", func(i int) map[string]string {
				return map[string]string{compositionLabel: fmt.Sprintf("composition-%05d", i/4)}
			}))),
		global(kindOf[functionRevision](packages, "FunctionRevision", 2*functions, shape{settings: 12},
			numbered("function", func(i int) map[string]string {
				return map[string]string{packageLabel: fmt.Sprintf("function-%d", i/2)}
			}))),
		secretsOf(2*xrs, secret(600, func(i int) identity {
			return identity{namespace: system, name: fmt.Sprintf("connection-%05d", i)}
		})),
	}
	return operator{
		name: "Crossplane", kinds: kinds, reconciles: 30 * percent,
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			x := numberOf(key.Name)
			comp := fmt.Sprintf("composition-%05d", x%compositions)
			r.get(key, kinds[0].example())
			r.get(types.NamespacedName{Name: comp}, &custom[composition]{})
			r.list(&customList[compositionRevision]{}, client.MatchingLabels{compositionLabel: comp})
			for k := range each { // ObserveComposedResources
				r.get(types.NamespacedName{Name: fmt.Sprintf("bucket-%05d", x*each+k)}, kinds[1].example())
				r.get(types.NamespacedName{Name: fmt.Sprintf("instance-%05d", x*each+k)}, kinds[2].example())
			}
			for k := range 2 { // FetchConnection
				r.get(types.NamespacedName{
					Namespace: system, Name: fmt.Sprintf("connection-%05d", 2*x+k),
				}, &corev1.Secret{})
			}
			for k := range 3 { // getClientConn, once for each function
				r.list(&customList[functionRevision]{}, client.MatchingLabels{
					packageLabel: fmt.Sprintf("function-%d", (x+k)%functions),
				})
			}
			r.list(kinds[3].list(), client.MatchingLabels{"team": team(x)}) // required resources
			return r.err
		},
	}
}

// prometheusOperator is the sync of a Prometheus that selects the resources of a team's
// namespaces.
func prometheusOperator(percent int) operator {
	const group, selected, nameLabel, modeLabel = "monitoring.coreos.com/", "prometheus", "operator.prometheus.io/name",
		"operator.prometheus.io/mode"
	n := 3 * percent
	servers := min(20, n)
	server := func(i int) identity {
		return identity{namespace: operatorsNamespace(i % servers), name: fmt.Sprintf("prometheus-%05d", i),
			labels: map[string]string{
				nameLabel: fmt.Sprintf("prometheus-%05d", i%servers), modeLabel: "server",
			}}
	}
	labelled := func(prefix string) func(i int) identity {
		return inNamespaces(n, prefix, func(i int) map[string]string {
			if i/n%3 == 2 {
				return map[string]string{selected: "other"}
			}
			return map[string]string{selected: "main"}
		})
	}
	spaces := metadataOf(corev1.SchemeGroupVersion.WithKind("Namespace"), n, namespaceObject)
	spaces.cluster = true
	sets := cachedKind{
		gvk: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), count: 2 * servers, make: statefulSet(server),
		example: func() client.Object { return &appsv1.StatefulSet{} },
		list:    func() client.ObjectList { return &appsv1.StatefulSetList{} },
	}
	kinds := []cachedKind{
		kindOf[prometheus](group+"v1", "Prometheus", servers, shape{settings: 40, entries: 10}, server),
		kindOf[serviceMonitor](group+"v1", "ServiceMonitor", 10*n, shape{settings: 4, entries: 4}, labelled("monitor")),
		kindOf[podMonitor](group+"v1", "PodMonitor", 2*n, shape{settings: 4, entries: 4}, labelled("pod")),
		kindOf[probe](group+"v1", "Probe", n, shape{settings: 6, entries: 2}, labelled("probe")),
		kindOf[scrapeConfig](group+"v1alpha1", "ScrapeConfig", max(1, n/3), shape{settings: 8, entries: 3},
			labelled("scrape")),
		kindOf[prometheusRule](group+"v1", "PrometheusRule", 5*n, shape{settings: 2, entries: 25}, labelled("rule")),
		spaces, sets,
	}
	return operator{
		name: "Prometheus operator", kinds: kinds, reconciles: 4 * percent,
		reconcile: func(_ context.Context, r *operatorReads, key types.NamespacedName) error {
			i := numberOf(key.Name)
			r.get(key, &custom[prometheus]{})
			for k := 1; k <= 5; k++ { // selectObjects, and Select of the rules
				list := spaces.list().(*metav1.PartialObjectMetadataList)
				r.list(list, client.MatchingLabels{"team": team(i)})
				for _, space := range list.Items {
					r.list(kinds[k].list(), client.InNamespace(space.Name), client.MatchingLabels{selected: "main"})
				}
			}
			r.get(key, &appsv1.StatefulSet{})
			r.list(&appsv1.StatefulSetList{}, client.InNamespace(key.Namespace),
				client.MatchingLabels{nameLabel: key.Name, modeLabel: "server"})
			return r.err
		},
	}
}
