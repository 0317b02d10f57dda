// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// follower is an informer of client-go, with the record of its handler.
type follower struct {
	name     string
	resource schema.GroupVersionResource
	// selects reports whether the informer should have an object; nil means all.
	selects  func(kubetest.Stored) bool
	informer cache.SharedIndexInformer
	ledger   *ledger
}

// version returns the version of the informer.
func (f *follower) version() uint64 {
	v, err := strconv.ParseUint(f.informer.LastSyncResourceVersion(), 10, 64)
	if err != nil {
		return 0 // it has not started
	}
	return v
}

// followers are all informers, of every kind.
type followers struct {
	all      []*follower
	relisted func() bool
}

const (
	// tongue is protobuf, and JSON for resources without it.
	tongue = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// page is the page size of paged lists.
	page = 25
	// someNode is the node whose pods are selected.
	someNode = "node-1"
)

// newFollowers returns informers that do not run yet.
func newFollowers(t *testing.T, cfg *rest.Config, relisted func() bool) *followers {
	t.Helper()
	fs := &followers{relisted: relisted}
	proto := rest.CopyConfig(cfg)
	proto.AcceptContentTypes, proto.ContentType = tongue, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(proto)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.addTyped(client); err != nil {
		t.Fatal(err)
	}
	fs.addDynamic(loose)
	fs.addMetadata(meta)
	fs.addOld(text)
	for _, f := range fs.all {
		if _, err := f.informer.AddEventHandler(f.ledger); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

func (fs *followers) add(
	name string, r schema.GroupVersionResource, selects func(kubetest.Stored) bool, i cache.SharedIndexInformer,
) {
	fs.all = append(fs.all, &follower{
		name: r.Resource + ", " + name, resource: r, selects: selects, informer: i, ledger: newLedger(fs.relisted),
	})
}

// addTyped adds the informers that most controllers use: one factory, and some with
// selectors.
func (fs *followers) addTyped(client *kubernetes.Clientset) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, k := range kinds {
		i, err := factory.ForResource(k.GroupVersionResource)
		if err != nil {
			return fmt.Errorf("informer of %s: %w", k.Resource, err)
		}
		fs.add("typed", k.GroupVersionResource, nil, i.Informer())
	}
	scoped := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespaces[1]))
	fs.add("typed, of a namespace", core.WithResource("configmaps"), func(o kubetest.Stored) bool {
		return o.Meta.GetNamespace() == namespaces[1]
	}, scoped.Core().V1().ConfigMaps().Informer())
	placed := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "spec.nodeName=" + someNode
		}))
	fs.add("typed, of a node", core.WithResource("pods"), func(o kubetest.Stored) bool {
		return o.Object.(*corev1.Pod).Spec.NodeName == someNode
	}, placed.Core().V1().Pods().Informer())
	return nil
}

// addDynamic adds informers of the operator's type, and of objects that the cluster
// itself writes.
func (fs *followers) addDynamic(client dynamic.Interface) {
	all := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, r := range []schema.GroupVersionResource{
		sites, core.WithResource("nodes"), core.WithResource("events"),
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	} {
		fs.add("dynamic", r, nil, all.ForResource(r).Informer())
	}
	selector, selects := byLabel(colorLabel + "=red")
	some := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll, selector)
	for _, r := range []schema.GroupVersionResource{
		sites, core.WithResource("configmaps"), apps.WithResource("deployments"),
	} {
		fs.add("dynamic, with a label", r, selects, some.ForResource(r).Informer())
	}
}

func (fs *followers) addMetadata(client metadata.Interface) {
	selector, selects := byLabel(colorLabel + " in (red, blue)," + siteLabel)
	some := metadatainformer.NewFilteredSharedInformerFactory(client, 0, metav1.NamespaceAll, selector)
	for _, r := range []schema.GroupVersionResource{sites, core.WithResource("secrets"), core.WithResource("pods")} {
		fs.add("metadata, with labels", r, selects, some.ForResource(r).Informer())
	}
	selector, selects = byLabel(colorLabel + "!=red")
	others := metadatainformer.NewFilteredSharedInformerFactory(client, 0, metav1.NamespaceAll, selector)
	fs.add("metadata, without a label", core.WithResource("services"), selects,
		others.ForResource(core.WithResource("services")).Informer())
}

// addOld adds informers of clients from before lists could be streamed.
func (fs *followers) addOld(client *kubernetes.Clientset) {
	v1 := client.CoreV1()
	fs.add("without WatchList", core.WithResource("configmaps"), nil, oldInformer(&corev1.ConfigMap{}, 0,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return v1.ConfigMaps("").List(ctx, o)
		}, v1.ConfigMaps("").Watch))
	fs.add("without WatchList, in pages", core.WithResource("secrets"), nil, oldInformer(&corev1.Secret{}, page,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return v1.Secrets("").List(ctx, o)
		},
		v1.Secrets("").Watch))
	fs.add("without WatchList, in pages", core.WithResource("pods"), nil, oldInformer(&corev1.Pod{}, page,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return v1.Pods("").List(ctx, o)
		},
		v1.Pods("").Watch))
}

// oldInformer lists and then watches: at version 0, or in pages, which means at the
// newest version.
func oldInformer(example runtime.Object, page int64,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if page > 0 {
				o.Limit, o.ResourceVersion = page, ""
			}
			return list(ctx, o)
		},
		WatchFuncWithContext: watch,
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, noStream{}), example, 0,
		cache.Indexers{})
}

// noStream reports that lists cannot be streamed.
type noStream struct{}

// IsWatchListSemanticsUnSupported is the method that client-go checks.
func (noStream) IsWatchListSemanticsUnSupported() bool { return true }

func byLabel(selector string) (func(*metav1.ListOptions), func(kubetest.Stored) bool) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		panic(err) // it is a constant
	}
	return func(o *metav1.ListOptions) { o.LabelSelector = selector },
		func(o kubetest.Stored) bool { return parsed.Matches(labels.Set(o.Meta.GetLabels())) }
}

// run runs the informers until ctx ends, and returns when all have ended.
func (fs *followers) run(ctx context.Context) {
	done := make(chan struct{})
	for _, f := range fs.all {
		go func() {
			f.informer.RunWithContext(ctx)
			done <- struct{}{}
		}()
	}
	for range fs.all {
		<-done
	}
}
