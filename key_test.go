// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/wire"
)

// TestKey_asClientGo compares keys with those of client-go and of the objects' bytes.
func TestKey_asClientGo(t *testing.T) {
	dynamic := &unstructured.Unstructured{}
	dynamic.SetNamespace("shop")
	dynamic.SetName("cart")
	for _, obj := range []metav1.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-7"}},
		&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a.b:c"}},
		dynamic,
	} {
		want, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			t.Fatal(err)
		}
		key := watershed.Key(obj)
		expect.Equal(t, key, want)
		namespace, name, err := watershed.SplitKey(key)
		if err != nil {
			t.Error(err)
		}
		expect.Equal(t, namespace, obj.GetNamespace())
		expect.Equal(t, name, obj.GetName())
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	o, err := wire.Encode(pod, wire.JSON, podKind)
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, watershed.Key(pod), o.Key())
}

func TestSplitKey_refusesOtherText(t *testing.T) {
	for _, text := range []string{"", "/", "shop/", "/cart", "a/b/c", "a//c"} {
		if namespace, name, err := watershed.SplitKey(text); err == nil {
			t.Errorf("%q is split into %q and %q", text, namespace, name)
		}
	}
}
