// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
)

// kinds records the kinds of objects, by the place where they were seen.
func kinds(j *recorder, place string, obj any) {
	if gvk := obj.(*corev1.Pod).GroupVersionKind(); gvk.Empty() {
		j.note("%s: none", place)
	} else {
		j.note("%s: %s", place, gvk.Kind)
	}
}

// kindsOf runs an informer of one pod and returns the kinds that its users see.
func kindsOf(t *testing.T, opts compat.Options, lw cache.ListerWatcher, transform func(*corev1.Pod)) []string {
	t.Helper()
	j := &recorder{}
	opts.Logger = quiet.Logger
	i := compat.NewInformer(&opts)(lw, &corev1.Pod{}, 0, cache.Indexers{"kind": func(obj any) ([]string, error) {
		kinds(j, "index", obj)
		return nil, nil
	}})
	if err := i.SetTransform(func(obj any) (any, error) {
		kinds(j, "transform", obj)
		transform(obj.(*corev1.Pod))
		return obj, nil
	}); err != nil {
		t.Fatal(err)
	}
	r := join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { kinds(j, "handler", obj) }})
	synced(t, i, r)
	kinds(j, "store", i.GetStore().List()[0])
	got := j.take()
	slices.Sort(got)
	return slices.Compact(got)
}

func nothing(*corev1.Pod) {}

// TestKind_ofTypedObjectsIsAsWithClientGo checks that apiVersion and kind are empty, as
// clients leave them, and that a kind which was set stays.
func TestKind_ofTypedObjectsIsAsWithClientGo(t *testing.T) {
	stated := pod("a", "1")
	stated.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	none := []string{"handler: none", "index: none", "store: none", "transform: none"}
	all := []string{"handler: Pod", "index: Pod", "store: Pod", "transform: Pod"}
	state := func(p *corev1.Pod) { p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod")) }
	forget := func(p *corev1.Pod) { p.SetGroupVersionKind(schema.GroupVersionKind{}) }
	for name, c := range map[string]struct {
		opts      compat.Options
		lw        func(t *testing.T) cache.ListerWatcher
		transform func(*corev1.Pod)
		want      []string
	}{
		"by default":          {compat.Options{}, values(pod("a", "1")), nothing, none},
		"unpacked":            {compat.Options{Fast: true}, values(pod("a", "1")), nothing, none},
		"with KeepKind":       {compat.Options{KeepKind: true}, values(pod("a", "1")), nothing, all},
		"JSON from a tap":     {compat.Options{}, tapped(runtime.ContentTypeJSON), nothing, none},
		"protobuf from a tap": {compat.Options{}, tapped(runtime.ContentTypeProtobuf), nothing, none},
		"a tap with KeepKind": {compat.Options{KeepKind: true}, tapped(runtime.ContentTypeProtobuf), nothing, all},
		"the ListerWatcher's": {compat.Options{}, values(stated), nothing, all},
		"the transform's": {
			compat.Options{},
			values(pod("a", "1")),
			state,
			[]string{"handler: Pod", "index: Pod", "store: Pod", "transform: none"},
		},
		"the transform's removal": {
			compat.Options{},
			values(stated),
			forget,
			[]string{"handler: none", "index: none", "store: none", "transform: Pod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kindsOf(t, c.opts, c.lw(t), c.transform); !slices.Equal(got, c.want) {
				t.Errorf("seen %q, want %q", got, c.want)
			}
		})
	}
}

// values returns a ListerWatcher of decoded values.
func values(pods ...*corev1.Pod) func(t *testing.T) cache.ListerWatcher {
	return func(t *testing.T) cache.ListerWatcher { return podSource(t, pods...) }
}

// tapped returns a ListerWatcher of a client with a tap.
func tapped(media string) func(t *testing.T) cache.ListerWatcher {
	return func(t *testing.T) cache.ListerWatcher {
		cfg, _ := serve(t, media, versioned(pod("a", "1"), 1)).config()
		return podsOf(clientset(t, cfg))
	}
}
