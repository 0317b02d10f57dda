// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/go-logr/logr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// kindOfCache is one of the caches that are compared.
type kindOfCache struct {
	name string
	// subject is nil for controller-runtime's default.
	subject constructor
	tapped  bool
}

var caches = []kindOfCache{
	{"client-go", nil, false},
	{"ours", ours, false},
	{"ours, tapped", ours, true},
	{
		"ours, tapped and fast", compat.NewInformer(&compat.Options{Fast: true, Logger: slog.New(slog.DiscardHandler)}),
		true,
	},
}

// traffic has the bytes that clients read from lists and watches of config maps, and the
// number of their open watches.
type traffic struct {
	next http.RoundTripper
	read *atomic.Int64
	open *atomic.Int32
}

func (m traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/configmaps") && resp.StatusCode == http.StatusOK {
		resp.Body = &counted{ReadCloser: resp.Body, n: m.read}
	}
	return resp, err
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// watches counts the open watches, from inside the tap.
type watches struct {
	next http.RoundTripper
	open *atomic.Int32
}

func (w watches) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/configmaps") {
		w.open.Add(1)
		context.AfterFunc(r.Context(), func() { w.open.Add(-1) })
	}
	return resp, err
}

// configCluster is a cluster with some config maps in it.
type configCluster struct {
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
}

func configMap(namespace, name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"color": color}},
		Data:       map[string]string{"color": color, "name": name},
	}
}

// filled returns a configMap with data that cannot be compressed.
func filled(namespace, name string, size int) *corev1.ConfigMap {
	noise := make([]byte, size*3/4)
	_, _ = rand.Read(noise)
	m := configMap(namespace, name, "grey")
	m.Data["noise"] = base64.StdEncoding.EncodeToString(noise)
	return m
}

func newConfigCluster(t *testing.T) *configCluster {
	t.Helper()
	c := kubetest.Start(t, nil)
	ctrllog.SetLogger(logr.Discard())
	w := &configCluster{cluster: c}
	cfg := c.Config()
	cfg.QPS = -1
	var err error
	if w.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"one", "two"} {
		_, err := w.client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for n, color := range []string{"red", "green", "blue", "red", "green"} {
			w.create(t, configMap(namespace, fmt.Sprintf("m%d", n), color))
		}
	}
	return w
}

func (w *configCluster) create(t *testing.T, m *corev1.ConfigMap) {
	t.Helper()
	if _, err := w.client.CoreV1().ConfigMaps(m.Namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *configCluster) update(t *testing.T, namespace, name, color string) {
	t.Helper()
	if _, err := w.client.CoreV1().ConfigMaps(namespace).Update(t.Context(), configMap(namespace, name, color),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *configCluster) remove(t *testing.T, namespace, name string) {
	t.Helper()
	err := w.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// config returns the config for a kind of cache.
func (w *configCluster) config(k kindOfCache) (*rest.Config, traffic) {
	m := traffic{read: &atomic.Int64{}, open: &atomic.Int32{}}
	cfg := w.cluster.Config()
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return watches{next, m.open} })
	if k.tapped {
		cfg.Wrap(compat.Tap)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return traffic{next, m.read, m.open} })
	return cfg, m
}

// cache returns a cache that runs for the duration of the test.
func (w *configCluster) cache(t *testing.T, k kindOfCache, opts ctrlcache.Options) (ctrlcache.Cache, traffic) {
	t.Helper()
	cfg, m := w.config(k)
	opts.Scheme, opts.NewInformer = scheme.Scheme, k.subject
	c, err := ctrlcache.New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	return c, m
}

// asText returns objects as text, so that they can be compared.
func asText(t *testing.T, objs ...client.Object) string {
	t.Helper()
	var lines []string
	for _, obj := range objs {
		b, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		var indented bytes.Buffer
		if err := json.Compact(&indented, b); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, cache.MetaObjectToName(obj).String()+" "+indented.String())
	}
	return strings.Join(sortedCopy(lines), "\n")
}

// compare runs a body with every kind of cache, and compares the results with those of
// client-go's.
func compare(t *testing.T, body func(t *testing.T, k kindOfCache) []string) {
	t.Helper()
	var want []string
	for _, k := range caches {
		t.Run(k.name, func(t *testing.T) {
			got := body(t, k)
			if k.subject == nil {
				if want = got; len(want) == 0 {
					t.Error("there is nothing to compare with")
				}
				return
			}
			if len(got) != len(want) {
				t.Fatalf("%d results, want %d", len(got), len(want))
			}
			for n := range got {
				if got[n] != want[n] {
					t.Errorf("result %d is\n%s\nwant\n%s", n, got[n], want[n])
				}
			}
		})
	}
}
