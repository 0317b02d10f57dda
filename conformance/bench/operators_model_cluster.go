// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operators returns the models with a percentage of the objects and reconciles of the
// whole benchmark.
func operators(percent int) []operator {
	return []operator{certManager(percent), externalSecrets(percent), argoCD(percent), crossplane(percent), prometheusOperator(percent)}
}

// crossplane is the reconcile of a composite resource with ten composed resources and a
// pipeline of three functions.
func crossplane(percent int) operator {
	const compositionLabel, packageLabel, system = "crossplane.io/composition-name", "pkg.crossplane.io/package", "crossplane-system"
	const compositions, functions, each = 30, 12, 5
	xrs := 15 * percent
	named := func(prefix string, labels func(i int) map[string]string) func(i int) identity {
		return func(i int) identity {
			id := identity{name: fmt.Sprintf("%s-%05d", prefix, i)}
			if labels != nil {
				id.labels = labels(i)
			}
			return id
		}
	}
	composite := func(i int) map[string]string {
		return map[string]string{"crossplane.io/composite": fmt.Sprintf("xr-%05d", i/each)}
	}
	global := func(k cachedKind) cachedKind { k.cluster = true; return k }
	const core, packages = "apiextensions.crossplane.io/v1", "pkg.crossplane.io/v1"
	kinds := []cachedKind{
		looseKindOf("example.crossplane.io/v1", "Database", xrs, shape{settings: 8, reported: 2 * each}, named("xr", nil)),
		looseKindOf("storage.example.io/v1", "Bucket", each*xrs, shape{settings: 15, entries: 4, reported: 3}, named("bucket", composite)),
		looseKindOf("compute.example.io/v1", "Instance", each*xrs, shape{settings: 20, entries: 4, reported: 3}, named("instance", composite)),
		looseKindOf("apiextensions.crossplane.io/v1beta1", "EnvironmentConfig", 2*percent, shape{settings: 30}, named("config", nil)),
		global(kindOf[composition](core, "Composition", compositions, shape{settings: 5, entries: 40}, named("composition", nil))),
		global(kindOf[compositionRevision](core, "CompositionRevision", 4*compositions, shape{settings: 5, entries: 40}, named("revision", func(i int) map[string]string {
			return map[string]string{compositionLabel: fmt.Sprintf("composition-%05d", i/4)}
		}))),
		global(kindOf[functionRevision](packages, "FunctionRevision", 2*functions, shape{settings: 12}, named("function", func(i int) map[string]string {
			return map[string]string{packageLabel: fmt.Sprintf("function-%d", i/2)}
		}))),
		secretsOf(2*xrs, secret(600, func(i int) identity { return identity{namespace: system, name: fmt.Sprintf("connection-%05d", i)} })),
	}
	return operator{
		name: "Crossplane", kinds: kinds, reconciles: 30 * percent, warm: 3 * percent,
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
				r.get(types.NamespacedName{Namespace: system, Name: fmt.Sprintf("connection-%05d", 2*x+k)}, &corev1.Secret{})
			}
			for k := range 3 { // getClientConn, once for each function
				r.list(&customList[functionRevision]{}, client.MatchingLabels{packageLabel: fmt.Sprintf("function-%d", (x+k)%functions)})
			}
			r.list(kinds[3].list(), client.MatchingLabels{"team": team(x)}) // required resources
			return r.err
		},
	}
}

// prometheusOperator is the sync of a Prometheus that selects the resources of a team's
// namespaces.
func prometheusOperator(percent int) operator {
	const group, selected, nameLabel, modeLabel = "monitoring.coreos.com/", "prometheus", "operator.prometheus.io/name", "operator.prometheus.io/mode"
	n := 3 * percent
	servers := min(20, n)
	server := func(i int) identity {
		return identity{namespace: operatorsNamespace(i % servers), name: fmt.Sprintf("prometheus-%05d", i), labels: map[string]string{
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
		kindOf[scrapeConfig](group+"v1alpha1", "ScrapeConfig", max(1, n/3), shape{settings: 8, entries: 3}, labelled("scrape")),
		kindOf[prometheusRule](group+"v1", "PrometheusRule", 5*n, shape{settings: 2, entries: 25}, labelled("rule")),
		spaces, sets,
	}
	return operator{
		name: "Prometheus operator", kinds: kinds, reconciles: 4 * percent, warm: max(1, percent/2),
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
			r.list(&appsv1.StatefulSetList{}, client.InNamespace(key.Namespace), client.MatchingLabels{nameLabel: key.Name, modeLabel: "server"})
			return r.err
		},
	}
}
