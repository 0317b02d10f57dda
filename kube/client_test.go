// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// configMap returns a manifest.
func configMap(name, label string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {test: %s}}\n", name, label)
}

// testSmallClient runs after testContent, whose pods fill three pages.
func testSmallClient(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	truth, err := k.Truth(ctx, pods.GroupResource())
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	version, err := c.List(ctx, kube.Query{Resource: pods}, func(o *wire.Object) error {
		if i >= len(truth.Objects) || truth.Objects[i].Meta.GetName() != o.Name() {
			return fmt.Errorf("object %d is %s", i, o)
		}
		i++
		return nil
	})
	if err != nil || i != len(truth.Objects) || version == "" {
		t.Errorf("listed %d of %d pods, version %q, %v", i, len(truth.Objects), version, err)
	}

	source, err := c.Source(kube.Query{Resource: pods})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := source.Count(ctx); err != nil || n != len(truth.Objects) {
		t.Errorf("counted %d of %d pods, %v", n, len(truth.Objects), err)
	}

	enough := errors.New("enough")
	i = 0
	_, err = c.List(ctx, kube.Query{Resource: pods}, func(*wire.Object) error {
		if i++; i == 10 {
			return enough
		}
		return nil
	})
	if err != enough || i != 10 { //nolint:errorlint // the very same
		t.Errorf("list went on to %d, %v", i, err)
	}

	version, err = c.List(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, func(*wire.Object) error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	create(ctx, t, k, configMap("first", "client")+"---\n"+configMap("second", "client"))
	var got []string
	for e, err := range c.Watch(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, version) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == delta.Added {
			got = append(got, e.Object.Key())
		}
		if len(got) == 2 {
			break
		}
	}
	if strings.Join(got, " ") != "default/first default/second" {
		t.Errorf("watched %v", got)
	}
	for _, err := range c.Watch(ctx, kube.Query{Resource: nonsense}, "") {
		wantReason(t, "watch of an unknown resource", err, reflector.NotServed)
	}
	short := kube.Query{Resource: configMaps, Tweak: func(o *metav1.ListOptions) { o.TimeoutSeconds = new(int64(1)) }}
	for _, err := range c.Watch(ctx, short, version) {
		if err != nil {
			t.Errorf("a watch that the server ended: %v", err)
		}
	}

	// A source returns the version of any object, whatever it selects.
	selecting := sourceOf(t, c, kube.Query{Resource: configMaps, LabelSelector: "test=none"})
	uid, is, err := selecting.Get(ctx, "default/first")
	if err != nil || uid == "" || is == "" {
		t.Errorf("UID %q, version %q, %v", uid, is, err)
	}
	if uid, is, err := selecting.Get(ctx, "default/third"); err != nil || uid+is != "" {
		t.Errorf("a missing object has UID %q and version %q, %v", uid, is, err)
	}
	if _, _, err := sourceOf(t, c, kube.Query{Resource: nonsense}).Get(ctx,
		"default/first"); !apierrors.IsNotFound(err) {
		t.Errorf("an object of an unknown resource: %v", err)
	}

	o, err := c.Get(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, "first")
	if is != fmt.Sprint(o.Version()) {
		t.Errorf("version %s, want %d", is, o.Version())
	}
	if err != nil || o.Key() != "default/first" {
		t.Errorf("got %v, %v", o, err)
	}
	if v, ok := o.Label("test"); !ok || v != "client" {
		t.Errorf("label %q, %t", v, ok)
	}
	_, err = c.Get(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, "third")
	if !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), "get third of configmaps of default in test: ") {
		t.Errorf("get what is not there: %v", err)
	}
	wantReason(t, "get what is not there", err, reflector.Unknown)
	_, err = c.Get(ctx, kube.Query{Resource: nonsense, Namespace: "default"}, "first")
	wantReason(t, "get of an unknown resource", err, reflector.Unknown)
	if _, err := c.Get(ctx, kube.Query{Resource: configMaps, LabelSelector: "a=b"}, "first"); err == nil {
		t.Error("get by a selector")
	}
	if _, err := c.Get(ctx, kube.Query{Resource: configMaps, Namespace: "default"}, "a/b"); err == nil {
		t.Error("get of a path")
	}
	if err := k.DeleteManifest(ctx, configMap("first", "")+"---\n"+configMap("second", "")); err != nil {
		t.Error(err)
	}
}

// testSelection also runs after testContent.
func testSelection(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	w := kubetest.Workload{}
	pod := w.Pod(7)
	count := func(q kube.Query, want func(*wire.Object) bool) int {
		t.Helper()
		q.Resource = pods
		n := 0
		if _, err := c.List(ctx, q, func(o *wire.Object) error {
			n++
			if !want(o) {
				return fmt.Errorf("%s is not what was asked for", o)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	app := pod.Labels["app.kubernetes.io/name"]
	if n := count(kube.Query{LabelSelector: "app.kubernetes.io/name=" + app}, func(o *wire.Object) bool {
		v, _ := o.Label("app.kubernetes.io/name")
		return v == app
	}); n != 10 {
		t.Errorf("%d pods of %s", n, app)
	}
	if n := count(kube.Query{Namespace: pod.Namespace}, func(o *wire.Object) bool {
		return o.Namespace() == pod.Namespace
	}); n != 20 {
		t.Errorf("%d pods in %s", n, pod.Namespace)
	}
	if n := count(kube.Query{FieldSelector: "metadata.name=" + pod.Name}, func(o *wire.Object) bool {
		return o.Name() == pod.Name
	}); n != 1 {
		t.Errorf("%d pods named %s", n, pod.Name)
	}
	if n := count(kube.Query{FieldSelector: "spec.nodeName=" + pod.Spec.NodeName}, func(*wire.Object) bool {
		return true
	}); n == 0 || n > 50 {
		t.Errorf("%d pods on %s", n, pod.Spec.NodeName)
	}

	// Read the pages one by one.
	s := sourceOf(t, c, kube.Query{Resource: pods, Namespace: pod.Namespace})
	var opts reflector.ListOptions
	pages, n := 0, 0
	for opts.Limit = 6; ; pages++ {
		objects, page, err := listAll(ctx, s, opts)
		if err != nil {
			t.Fatal(err)
		}
		n += len(objects)
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	if pages != 3 || n != 20 {
		t.Errorf("%d pods on %d full pages", n, pages)
	}
	_, page, err := listAll(ctx, s, reflector.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if objects, _, err := listAll(ctx, s,
		reflector.ListOptions{Version: page.Version, NotOlder: true, Limit: 500}); err != nil || len(objects) != 20 {
		t.Errorf("not older than %s: %d objects, %v", page.Version, len(objects), err)
	}
}

func testWatchEnds(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	for mode, q := range modes {
		q.Resource = configMaps
		s := sourceOf(t, c, q)
		_, page, err := listAll(ctx, s, reflector.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		// The server ends the watch. Its minimum is half a second.
		w := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version, Timeout: 500 * time.Millisecond})
		begin := time.Now()
		for range 2 {
			if e, err := w.Next(); err != io.EOF { //nolint:errorlint // exactly that is promised
				t.Errorf("%s: %+v, %v, want the end", mode, e, err)
			}
		}
		if took := time.Since(begin); took < 500*time.Millisecond || took > 10*time.Second {
			t.Errorf("%s: the watch ended after %s, not after one second", mode, took)
		}

		// Close ends the watch.
		w = beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
		closed := make(chan time.Time, 1)
		timer := time.AfterFunc(50*time.Millisecond, func() {
			closed <- time.Now()
			w.Close()
		})
		defer timer.Stop()
		_, err = w.Next()
		if took := time.Since(<-closed); !errors.Is(err, context.Canceled) || took > 10*time.Second {
			t.Errorf("%s: after Close: %v, %s later", mode, err, took)
		}
		if _, again := w.Next(); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: %v, then %v", mode, err, again)
		}

		// The context ends the watch, and the error contains its cause.
		cause := errors.New("lost interest")
		inner, cancel := context.WithCancelCause(ctx)
		w = beginWatch(inner, t, s, reflector.WatchOptions{Version: page.Version})
		cancel(cause)
		if _, err := w.Next(); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: after the context's end: %v", mode, err)
		}
	}
	if _, err := sourceOf(t, c, kube.Query{Resource: pods}).Watch(canceled(), reflector.WatchOptions{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("watch without time: %v", err)
	}
	if _, err := c.Resources(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("discovery without time: %v", err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// testWriting runs the calls of ExampleCluster_Config, and reads them as changes.
func testWriting(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	s := sourceOf(t, c, kube.Query{Resource: configMaps, Namespace: "default", FieldSelector: "metadata.name=written"})
	_, page, err := listAll(ctx, s, reflector.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := beginWatch(ctx, t, s, reflector.WatchOptions{Version: page.Version})
	if err := write(ctx, c, "default", "written"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		change delta.Type
		data   map[string]string
	}{
		{delta.Added, map[string]string{"colour": "red"}},
		{delta.Updated, map[string]string{"colour": "green"}},
		{delta.Updated, map[string]string{"colour": "green", "size": "9"}},
		{delta.Deleted, map[string]string{"colour": "green", "size": "9"}},
	} {
		m, err := wire.Decode[*corev1.ConfigMap](wantEvent(t, w, want.change, "default/written"))
		if err != nil {
			t.Fatal(err)
		}
		expect.Equal(t, m.Data, want.data)
	}
}
