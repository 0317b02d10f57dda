// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/disk"
)

// reads counts the requests for all config maps, as a list or as the initial events of a
// watch.
type reads struct {
	next http.RoundTripper
	n    *atomic.Int32
}

func (r reads) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	streamed := q.Get("sendInitialEvents") == "true" && q.Get("fieldSelector") != "metadata.name=-"
	listed := q.Get("watch") == "" && q.Get("limit") != "1"
	if strings.HasSuffix(req.URL.Path, "/configmaps") && (listed || streamed) {
		r.n.Add(1)
	}
	return r.next.RoundTrip(req)
}

// kept is a process: a cache of config maps in three forms, with files.
type kept struct {
	ctrlcache.Cache
	reads atomic.Int32
	log   bytes.Buffer // read only after the end
	end   func()
}

// keeping configures a process.
type keeping struct {
	untapped bool
	selector string
	// transform and name are those of the config maps.
	transform cache.TransformFunc
	name      string
}

// startKept starts a process with files in a directory. It has no files if dir is "".
func (w *configCluster) startKept(t *testing.T, dir string, k keeping) *kept {
	t.Helper()
	s := &kept{}
	cfg := w.cluster.Config()
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return reads{next, &s.reads} })
	opts := ctrlcache.Options{Scheme: scheme.Scheme, DefaultTransform: k.transform}
	selector, err := labels.Parse(k.selector)
	if err != nil {
		t.Fatal(err)
	}
	opts.DefaultLabelSelector = selector
	var d *disk.Directory
	var writing sync.WaitGroup
	writes, stop := context.WithCancel(context.Background())
	if dir != "" {
		if d, err = disk.Open(dir, nil); err != nil {
			t.Fatal(err)
		}
		writing.Go(func() { _ = d.Run(writes) })
		opts.NewInformer = compat.NewInformer(&compat.Options{
			Disk: d, TransformName: k.name, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		})
		if !k.untapped {
			cfg.Wrap(compat.Tap)
		}
	}
	if s.Cache, err = ctrlcache.New(cfg, opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		stop()
		writing.Wait()
		if d != nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(s.end)
	if !s.WaitForCacheSync(ctx) { // there are no informers yet: the cache has started
		t.Fatal("the cache has not started")
	}
	return s
}

// text returns all objects of the cache in three forms. The first call of a process begins
// its informers, and waits until they have synced.
func (s *kept) text(t *testing.T) [3]string {
	t.Helper()
	var typed corev1.ConfigMapList
	var free unstructured.UnstructuredList
	free.SetAPIVersion("v1")
	free.SetKind("ConfigMapList")
	about := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	var all [3][]client.Object
	for _, list := range []client.ObjectList{&typed, &free, &about} {
		if err := s.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range typed.Items {
		all[0] = append(all[0], &typed.Items[i])
	}
	for i := range free.Items {
		all[1] = append(all[1], &free.Items[i])
	}
	for i := range about.Items {
		all[2] = append(all[2], &about.Items[i])
	}
	var out [3]string
	for i := range all {
		if len(all[i]) == 0 {
			t.Fatalf("form %d has no objects", i)
		}
		out[i] = asText(t, all[i]...)
	}
	return out
}

// TestStored_controllerRuntime ends and starts processes with the same files. A process reads
// the objects of the server only if its files do not have them, and always has the objects
// that client-go's cache has.
func TestStored_controllerRuntime(t *testing.T) {
	w := newConfigCluster(t)
	paint := func(obj any) (any, error) {
		obj.(metav1.Object).SetAnnotations(map[string]string{"painted": "yes"})
		return obj, nil
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name   string
		dir    string
		with   keeping
		change func(t *testing.T)
		reads  int32
		// log is a part of the log, "" for no warnings.
		log string
	}{
		{"first", dir, keeping{}, func(*testing.T) {}, 3, ""},
		{"changes", dir, keeping{}, func(t *testing.T) {
			w.update(t, "one", "m1", "white")
			w.remove(t, "one", "m2")
			w.create(t, configMap("two", "m9", "black"))
		}, 0, ""},
		{"nothing", dir, keeping{}, func(*testing.T) {}, 0, ""},
		{"selector", dir, keeping{selector: "color=red"}, func(*testing.T) {}, 3, ""},
		{"selector again", dir, keeping{selector: "color=red"}, func(t *testing.T) {
			w.update(t, "one", "m0", "green") // leaves the selection
			w.update(t, "two", "m1", "red")
		}, 0, ""},
		{"the first again", dir, keeping{}, func(t *testing.T) { w.remove(t, "two", "m4") }, 0, ""},
		{"transform without a name", dir, keeping{transform: paint}, func(*testing.T) {}, 3, "needs TransformName"},
		{"transform", dir, keeping{transform: paint, name: "paint 1"}, func(*testing.T) {}, 3, ""},
		{"transform again", dir, keeping{transform: paint, name: "paint 1"}, func(*testing.T) {}, 0, ""},
		{"without a tap", t.TempDir(), keeping{untapped: true}, func(*testing.T) {}, 3, "no compat.Tap"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change(t)
			p := w.startKept(t, tt.dir, tt.with)
			got := p.text(t)
			want := w.startKept(t, "", tt.with).text(t)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("form %d:\n%s\nwant\n%s", i, got[i], want[i])
				}
			}
			p.end()
			if n := p.reads.Load(); n != tt.reads {
				t.Errorf("all objects were read %d times instead of %d", n, tt.reads)
			}
			warned := strings.Contains(p.log.String(), "level=WARN")
			if warned != (tt.log != "") || !strings.Contains(p.log.String(), tt.log) {
				t.Errorf("log:\n%s", &p.log)
			}
		})
	}
}
