// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/reflector"
)

// hasty makes reflectors retry quickly, so that tests do not wait.
var hasty = reflector.Options{
	Backoff: 100 * time.Millisecond, MaxBackoff: time.Second, Park: 200 * time.Millisecond, Absence: time.Second,
}

// TestReal_etcdRestoredFromABackup takes a backup, makes changes, and restores it.
func TestReal_etcdRestoredFromABackup(t *testing.T) {
	c := kubetest.Start(t, nil)
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	configs := client.CoreV1().ConfigMaps("default")
	put := func(name, value string) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}
		_, err := configs.Update(ctx, cm, metav1.UpdateOptions{})
		if err != nil {
			_, err = configs.Create(ctx, cm, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put("stays", "1")
	put("changes", "old")
	put("goes", "1")
	must(c.Etcd.Stop(ctx))
	data, backup := filepath.Join(c.Dir(), "etcd"), filepath.Join(t.TempDir(), "backup")
	must(os.CopyFS(backup, os.DirFS(data)))
	must(errors.Join(c.Etcd.Start(ctx), c.WaitReady(ctx)))

	var logged trace
	maps := informer(t, connect(t, c.Config()), &watershed.Options[*corev1.ConfigMap]{
		Namespace: "default", Reflector: hasty, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	running(t, maps.Run)
	synced(t, maps, time.Minute)
	for i := range 50 {
		put("changes", fmt.Sprint(i))
	}
	put("comes", "1")
	must(configs.Delete(ctx, "goes", metav1.DeleteOptions{}))
	expect.Eventually(t, 10*time.Second, func() error {
		if _, ok := maps.Get("default/goes"); ok {
			return errors.New("the informer lags")
		}
		return nil
	})
	before := maps.Status().Version

	c.APIServer.Kill()
	c.Etcd.Kill()
	must(os.RemoveAll(data))
	must(os.CopyFS(data, os.DirFS(backup)))
	must(errors.Join(c.Etcd.Start(ctx), c.APIServer.Start(ctx)))
	expect.Eventually(t, time.Minute, func() error {
		all, _ := truth(t, c, "configmaps")
		want := keep(all, "default/")
		if diff := differences(maps, want, objects[*corev1.ConfigMap]); len(diff) > 0 {
			return fmt.Errorf("%v: %+v", diff, maps.Status().Reflector)
		}
		return nil
	})
	cm, _ := maps.Get("default/changes")
	expect.Equal(t, cm.Data["v"], "old")
	expect.Soon(t, "the restore in the counters", func() bool { return maps.Status().Reflector.Restores == 1 })
	st := maps.Status()
	if st.Version >= before {
		t.Errorf("version %d, before the restore it was %d", st.Version, before)
	}
	if lines := strings.Join(logged.take(), ""); !strings.Contains(lines, "level=ERROR") ||
		!strings.Contains(lines, "gone back") {
		t.Errorf("the restore is not logged:\n%s", lines)
	}
	put("changes", "new")
	expect.Eventually(t, 10*time.Second, func() error {
		if cm, _ := maps.Get("default/changes"); cm.Data["v"] != "new" {
			return fmt.Errorf("the informer does not follow after the restore: %+v", maps.Status().Reflector)
		}
		return nil
	})
}

func keep(all map[string]kubetest.Stored, prefix string) map[string]kubetest.Stored {
	maps.DeleteFunc(all, func(key string, _ kubetest.Stored) bool { return !strings.HasPrefix(key, prefix) })
	return all
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func widget(name string) string {
	return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: " + name + "}, spec: {size: 3}}"
}

// TestReal_customResourceComesAndGoes removes a resource while an informer watches it.
func TestReal_customResourceComesAndGoes(t *testing.T) {
	c := kubetest.Start(t, nil)
	ctx := t.Context()
	cluster := connect(t, c.Config())
	create := func(manifest string) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error { return c.CreateManifest(ctx, manifest) })
	}
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	all := informer(t, cluster, &watershed.Options[*unstructured.Unstructured]{Resource: resource, Reflector: hasty})
	var tr trace
	all.Handle(watershed.Handler[*unstructured.Unstructured]{
		Add:    func(u *unstructured.Unstructured, _ bool) { tr.add("add %s %s", u.GetKind(), u.GetName()) },
		Delete: func(u *unstructured.Unstructured, _ bool) { tr.add("delete %s", u.GetName()) },
	})
	running(t, all.Run)
	state := func(want reflector.State) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error {
			if got := all.Status().Reflector; got.State != want {
				return fmt.Errorf("state %v, want %v: %w", got.State, want, got.Err)
			}
			return nil
		})
	}
	state(reflector.Parked) // the resource did not exist yet
	expect.Equal(t, all.HasSynced(), false)
	create(widgets)
	state(reflector.Watching)
	synced(t, all, time.Minute)
	create(widget("one"))
	create(widget("two"))
	expect.Eventually(t, 10*time.Second, func() error {
		if n := all.Len(); n != 2 {
			return fmt.Errorf("%d widgets", n)
		}
		return nil
	})
	if err := c.DeleteManifest(ctx, widgets); err != nil {
		t.Fatal(err)
	}
	state(reflector.Parked)
	expect.Eventually(t, 20*time.Second, func() error {
		if n := all.Len(); n > 0 {
			return fmt.Errorf("%d widgets of a resource that is gone", n)
		}
		return nil
	})
	create(widgets)
	create(widget("three"))
	expect.Eventually(t, 20*time.Second, func() error {
		if n := all.Len(); n != 1 {
			return fmt.Errorf("%d widgets: %+v", n, all.Status().Reflector)
		}
		return nil
	})
	expect.Eventually(t, 10*time.Second, func() error {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		got := slices.Clone(tr.lines)
		slices.Sort(got[2:min(4, len(got))])
		if want := []string{
			"add Widget one", "add Widget two", "delete one", "delete two", "add Widget three",
		}; !slices.Equal(got, want) {
			return fmt.Errorf("the handler received %q", got)
		}
		return nil
	})
}

// TestReal_factory shares watches, and stops resources without leases.
func TestReal_factory(t *testing.T) {
	c := kubetest.Start(t, nil)
	ctx := t.Context()
	cluster := connect(t, c.Config())
	if err := c.CreateManifest(ctx,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: one, labels: {app: shop}}}"); err != nil {
		t.Fatal(err)
	}
	configs := corev1.SchemeGroupVersion.WithResource("configmaps")
	f := watershed.NewFactory(cluster, &watershed.FactoryOptions{Namespace: "default", StopIdle: 50 * time.Millisecond})
	typed, err := watershed.Shared[*corev1.ConfigMap](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	running(t, f.Run)
	free, err := watershed.Shared(f, &watershed.SharedOptions[*unstructured.Unstructured]{Resource: configs})
	if err != nil {
		t.Fatal(err)
	}
	other, err := watershed.Shared(f, &watershed.SharedOptions[*corev1.ConfigMap]{LabelSelector: "app=none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	a, _ := typed.Get("default/one")
	b, _ := free.Get("default/one")
	expect.Equal(t, a.Kind+a.APIVersion, b.GetKind()+b.GetAPIVersion())
	expect.Equal(t, string(a.UID), string(b.GetUID()))
	expect.Equal(t, other.Len(), 0)
	expect.Equal(t, len(f.Status()[configs]), 2) // one watch for two types, one for another selection
	if err := typed.Run(ctx); err == nil {
		t.Error("a shared informer can be run by hand")
	}

	typed.Close()
	typed.Close()
	time.Sleep(200 * time.Millisecond)    // nothing may end in this time
	expect.Equal(t, free.Len() > 0, true) // the other lease keeps the informer running
	free.Close()
	other.Close()
	expect.Eventually(t, 10*time.Second, func() error {
		if n := len(f.Status()); n > 0 {
			return fmt.Errorf("%d resources are still there", n)
		}
		return nil
	})
	expect.Eventually(t, 10*time.Second, func() error {
		if n := free.Len(); n > 0 {
			return fmt.Errorf("%d objects are still there", n)
		}
		return nil
	})
	again, err := watershed.Shared[*corev1.ConfigMap](f, nil)
	if err != nil {
		t.Fatal(err)
	}
	synced(t, again.Informer, 10*time.Second)
	expect.Equal(t, again.Len() > 0, true)
}
