// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/kubetest"
)

type watcher interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// firstOf watches from a version and returns the first event. An error of the watch is
// returned as an error event.
func firstOf(ctx context.Context, t *testing.T, w watcher, version string) watch.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	events, err := w.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if status, ok := err.(apierrors.APIStatus); ok {
		s := status.Status()
		return watch.Event{Type: watch.Error, Object: &s}
	}
	if err != nil {
		t.Fatalf("watch from %s: %v", version, err)
	}
	defer events.Stop()
	e, ok := <-events.ResultChan()
	if !ok {
		t.Fatalf("watch from %s ended without an event", version)
	}
	return e
}

func isExpired(e watch.Event) bool {
	s, ok := e.Object.(*metav1.Status)
	return e.Type == watch.Error && ok && s.Code == http.StatusGone && s.Reason == metav1.StatusReasonExpired
}

// testCompact uses config maps, for which the cluster has no watch cache.
func testCompact(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	maps := clientFor(t, c.Config()).CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "old-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Data = map[string]string{"changed": "yes"}
	changed, err := maps.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := firstOf(ctx, t, maps, made.ResourceVersion); e.Type != watch.Modified {
		t.Fatalf("before compaction, watch from %s: %s %v, want the change", made.ResourceVersion, e.Type, e.Object)
	}
	revision, err := c.Compact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{made.ResourceVersion, changed.ResourceVersion} {
		if e := firstOf(ctx, t, maps, version); !isExpired(e) {
			t.Errorf("after compaction to %d, watch from %s: %s %v, want 410 Expired", revision, version, e.Type,
				e.Object)
		}
	}
}

// testExpire uses namespaces, for which the API server has a watch cache, as for nearly
// all resources.
func testExpire(t *testing.T, c *kubetest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	namespaces := clientFor(t, c.Config()).CoreV1().Namespaces()
	var versions []string
	for range 3 {
		ns, err := namespaces.Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "old-"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, ns.ResourceVersion)
	}
	if e := firstOf(ctx, t, namespaces, versions[0]); e.Type != watch.Added {
		t.Fatalf("before, watch from %s: %s %v, want the second namespace", versions[0], e.Type, e.Object)
	}
	if _, err := c.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	// This is why Expire exists: compaction alone changes nothing for this reader.
	if e := firstOf(ctx, t, namespaces, versions[0]); e.Type != watch.Added {
		t.Errorf("after compaction, watch from %s: %s %v; is Expire still needed?", versions[0], e.Type, e.Object)
	}

	begin := time.Now()
	revision, err := c.Expire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("expired everything before %d in %s", revision, time.Since(begin).Round(10*time.Millisecond))
	for _, version := range versions {
		if e := firstOf(ctx, t, namespaces, version); !isExpired(e) {
			t.Errorf("watch from %s: %s %v, want 410 Expired", version, e.Type, e.Object)
		}
		_, err := namespaces.List(ctx, metav1.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("list at %s: %v, want 410 Expired", version, err)
		}
	}
	list, err := namespaces.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rv, _ := strconv.ParseInt(list.ResourceVersion, 10, 64); rv < revision {
		t.Errorf("a new list is at %s, before %d", list.ResourceVersion, revision)
	}
	if _, err := namespaces.Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := firstOf(ctx, t, namespaces, list.ResourceVersion); e.Type != watch.Added {
		t.Errorf("watch from the new list: %s %v, want the new namespace", e.Type, e.Object)
	}
}
