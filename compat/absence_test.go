// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestInformer_keepsObjectsOfAResourceThatIsNotServed checks that no deletions are
// reported. An operator that reacts to deletions by deleting other objects must not do so
// because an API server is in trouble. The next complete list decides.
func TestInformer_keepsObjectsOfAResourceThatIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var absent atomic.Bool
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
		for _, name := range []string{"1", "2", "3"} {
			list.Items = append(list.Items, *versioned(pod("a", name), 5))
		}
		notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, "list",
			schema.GroupResource{Resource: "pods"}, "", "404 page not found", 0, true)
		var open atomic.Pointer[watch.RaceFreeFakeWatcher]
		i := podInformer(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if absent.Load() {
					return nil, notFound
				}
				return list, nil
			},
			WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				switch {
				case opts.SendInitialEvents != nil:
					return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
				case absent.Load():
					return nil, notFound
				}
				w := watch.NewRaceFreeFake()
				open.Store(w)
				return w, nil
			},
		}, 0, nil)
		j := &recorder{}
		stop := synced(t, i, join(t, i, j))
		j.expect(t, "add a/1 true", "add a/2 true", "add a/3 true")
		time.Sleep(time.Second)
		synctest.Wait()
		absent.Store(true)
		open.Load().Stop()
		time.Sleep(24 * time.Hour)
		if calls := j.take(); len(calls) > 0 {
			t.Fatalf("the handler received %q", calls)
		}
		expectNames(t, "the store", i.GetStore().List(), "a/1", "a/2", "a/3")
		list = &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}, Items: list.Items[:2]}
		absent.Store(false)
		time.Sleep(time.Minute)
		j.expect(t, "missed a/3 a/3")
		stop()
	})
}
