// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// storing is an informer with files, as one process has it.
type storing struct {
	*watershed.Informer[*corev1.ConfigMap]
	traffic *kube.Traffic
	end     func()

	mu   sync.Mutex
	adds map[string]string // the initial state of the handler: a value by key
}

// startStoring runs an informer with files in a directory.
func startStoring(t *testing.T, cluster *kubetest.Cluster, dir string) *storing {
	t.Helper()
	s := &storing{traffic: &kube.Traffic{}, adds: map[string]string{}}
	c, err := kube.FromConfig(cluster.Config(), &kube.Options{Name: "one", Traffic: s.traffic})
	if err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	writing, stopped := context.WithCancel(context.Background())
	running.Go(func() { _ = d.Run(writing) })
	s.Informer = informer(t, c, &watershed.Options[*corev1.ConfigMap]{Disk: d, Memory: watershed.Packed})
	s.Handle(watershed.Handler[*corev1.ConfigMap]{Add: func(o *corev1.ConfigMap, initial bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !initial {
			t.Errorf("%s was added after the initial state", o.Name)
		}
		s.adds[o.Namespace+"/"+o.Name] = o.Data["value"]
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	s.end = sync.OnceFunc(func() {
		cancel()
		<-done
		stopped()
		running.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		c.CloseIdleConnections()
	})
	t.Cleanup(s.end)
	return s
}

// TestReal_storedState: a process ends, objects change, and the next process continues with
// its files. It sends no list, and its handlers receive the state of the server.
func TestReal_storedState(t *testing.T) {
	cluster := kubetest.Start(t, nil)
	core := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1()
	client, others := core.ConfigMaps("default"), core.Namespaces()
	dir := t.TempDir()
	put := func(name, value string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			if _, err = client.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 50 {
		put(fmt.Sprint("c-", i), "first")
	}
	first := startStoring(t, cluster, dir)
	synced(t, first.Informer, 10*time.Second)
	put("c-1", "second")
	until(t, first, "default/c-1", "second")
	first.end()

	for _, tt := range []struct {
		name   string
		change func(t *testing.T)
		lists  uint64
	}{
		{"changes", func(t *testing.T) {
			put("c-2", "third")
			put("c-new", "third")
			if err := client.Delete(t.Context(), "c-3", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"nothing", func(*testing.T) {}, 0},
		// No event says that the copy is current, although the server's version has advanced.
		{"other resources", func(t *testing.T) {
			for i := range 5 {
				o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n-", i)}}
				if _, err := others.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}, 0},
		// The process starts first. Its files are used when the server is there, and the next
		// process continues from those of this one.
		{"unreachable", func(t *testing.T) {
			put("c-6", "third")
			cluster.APIServer.Kill()
			started := make(chan error, 1)
			time.AfterFunc(1500*time.Millisecond, func() { started <- cluster.APIServer.Start(context.Background()) })
			t.Cleanup(func() {
				if err := <-started; err != nil {
					t.Error(err)
				}
			})
		}, 1},
		{"after that", func(*testing.T) {}, 0},
		// A server that was restarted has no changes from before.
		{"restart", func(t *testing.T) {
			put("c-4", "fourth")
			cluster.APIServer.Kill()
			if err := cluster.APIServer.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			put("c-5", "fourth")
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change(t)
			began := time.Now()
			next := startStoring(t, cluster, dir)
			defer next.end()
			expect.Soon(t, "the stored state is loaded", func() bool { return next.Len() > 0 })
			loaded := time.Since(began)
			synced(t, next.Informer, 10*time.Second)
			t.Logf("loaded after %s, synced after %s: %v", loaded, time.Since(began), next.Status())
			want, _ := truth(t, cluster, "configmaps")
			if diff := differences(next.Informer, want, func(got *corev1.ConfigMap, want kubetest.Stored) string {
				return different(got, want)
			}); len(diff) > 0 {
				t.Error(diff)
			}
			if lists := next.traffic.Stats().List.Requests; lists > 0 {
				t.Errorf("%d lists", lists) // a streamed state is a watch
			}
			if is := next.Connection(); is.State != reflector.Watching || !is.StaleSince.IsZero() ||
				is.Lists != tt.lists {
				t.Errorf("status %+v", is)
			}
			expect.Soon(t, "the handler has all objects", func() bool {
				next.mu.Lock()
				defer next.mu.Unlock()
				return len(next.adds) >= len(want)
			})
			next.mu.Lock()
			defer next.mu.Unlock()
			if got, want := slices.Sorted(maps.Keys(next.adds)),
				slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
				t.Errorf("handler received %v, want %v", got, want)
			}
		})
	}
}

// until waits until an object of an informer has a value.
func until(t *testing.T, s *storing, key, value string) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("%s becomes %q", key, value), func() bool {
		o, ok := s.Get(key)
		return ok && o.Data["value"] == value
	})
}

// TestReal_storedFactory: the informers of a factory continue with its files.
func TestReal_storedFactory(t *testing.T) {
	cluster := kubetest.Start(t, nil)
	dir := t.TempDir()
	for _, lists := range []uint64{1, 0} {
		c := connect(t, cluster.Config())
		d, err := disk.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		writing, stop := context.WithCancel(context.Background())
		var running, writer sync.WaitGroup
		writer.Go(func() { _ = d.Run(writing) })
		f := watershed.NewFactory(c, &watershed.FactoryOptions{Disk: d})
		running.Go(func() { _ = f.Run(ctx) })
		roles, err := watershed.Shared[*unstructured.Unstructured](f,
			&watershed.SharedOptions[*unstructured.Unstructured]{
				Resource: rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
			})
		if err != nil {
			t.Fatal(err)
		}
		synced(t, roles.Informer, 10*time.Second)
		if got := roles.Connection().Lists; got != lists || roles.Len() == 0 {
			t.Errorf("%d lists, want %d; %d objects", got, lists, roles.Len())
		}
		cancel()
		running.Wait()
		stop()
		writer.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStored_needsToKnowTheObjects(t *testing.T) {
	c, err := kube.FromConfig(&rest.Config{Host: "https://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	same := func(o *corev1.Pod) (*corev1.Pod, error) { return o, nil }
	for name, tt := range map[string]struct {
		opts watershed.Options[*corev1.Pod]
		ok   bool
	}{
		"everything":        {watershed.Options[*corev1.Pod]{}, true},
		"unknown selection": {watershed.Options[*corev1.Pod]{Tweak: func(*metav1.ListOptions) {}}, false},
		"unknown transform": {watershed.Options[*corev1.Pod]{Transform: same}, false},
		"a transform by name": {
			watershed.Options[*corev1.Pod]{Transform: same, TransformName: "same, version 1"},
			true,
		},
	} {
		tt.opts.Disk = d
		if _, err := watershed.New(c, &tt.opts); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// redirected sends requests to another server.
type redirected struct {
	next http.RoundTripper
	to   *url.URL
}

func (r redirected) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = r.to.Host, ""
	return r.next.RoundTrip(req)
}

// TestStored_restoredAndAhead restarts an informer after its cluster was restored from a backup
// and has passed the stored version. The informer reads the state of the cluster instead of
// continuing.
func TestStored_restoredAndAhead(t *testing.T) {
	server, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 5})
	expect.NoError(t, err)
	defer server.Close()
	backup, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 5})
	expect.NoError(t, err)
	defer backup.Close()
	next, err := rest.TransportFor(backup.Cluster(0).Config())
	expect.NoError(t, err)
	to, err := url.Parse(backup.Cluster(0).Config().Host)
	expect.NoError(t, err)
	dir := t.TempDir()
	run := func(cfg *rest.Config, during func(*watershed.Informer[*corev1.Pod])) {
		t.Helper()
		runStored(t, dir, cfg, nil, during)
	}
	lost := server.Cluster(0).Touch(1)
	run(server.Cluster(0).Config(), func(i *watershed.Informer[*corev1.Pod]) {
		expect.Equal(t, i.Snapshot().Version(), lost)
	})
	for backup.Cluster(0).Version() <= lost {
		backup.Cluster(0).Touch(2)
	}
	cfg := server.Cluster(0).Config()
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper { return redirected{next, to} })
	run(cfg, func(i *watershed.Informer[*corev1.Pod]) {
		for _, n := range []int{1, 2} {
			want := backup.Cluster(0).Pod(n)
			if got, _ := i.Get(want.Namespace + "/" + want.Name); got == nil ||
				got.ResourceVersion != want.ResourceVersion {
				t.Errorf("pod %d is %v, want version %s", n, got, want.ResourceVersion)
			}
		}
		// The list counts after the informer has synced.
		expect.Soon(t, "the restore and the list in the counters", func() bool {
			is := i.Connection()
			return is.Restores == 1 && is.Lists == 1
		})
	})
}

// runStored runs an informer with files in a directory. It calls prepare before the run, unless it is
// nil, and during when the informer has synced.
func runStored(t *testing.T, dir string, cfg *rest.Config, prepare, during func(*watershed.Informer[*corev1.Pod])) {
	t.Helper()
	c, err := kube.FromConfig(cfg, nil)
	expect.NoError(t, err)
	defer c.CloseIdleConnections()
	d, err := disk.Open(dir, nil)
	expect.NoError(t, err)
	writing, stop := context.WithCancel(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- d.Run(writing) }()
	quiet := slog.New(slog.DiscardHandler)
	i, err := watershed.New[*corev1.Pod](c, &watershed.Options[*corev1.Pod]{Disk: d, Logger: quiet})
	expect.NoError(t, err)
	if prepare != nil {
		prepare(i)
	}
	go func() { ended <- i.Run(ctx) }()
	expect.NoError(t, i.WaitForSync(ctx))
	during(i)
	cancel()
	expect.NoError(t, <-ended)
	stop()
	expect.NoError(t, <-ended)
	expect.NoError(t, d.Close())
}

// TestStored_isStaleBeforeItCanBeRead asks for the status while the stored state is stored, in the
// function of an index.
func TestStored_isStaleBeforeItCanBeRead(t *testing.T) {
	server, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 5})
	expect.NoError(t, err)
	defer server.Close()
	dir, cfg := t.TempDir(), server.Cluster(0).Config()
	version := server.Cluster(0).Touch(1)
	current := func(i *watershed.Informer[*corev1.Pod]) { expect.Equal(t, i.Snapshot().Version(), version) }
	runStored(t, dir, cfg, nil, current)
	var stale []time.Time
	indexed := func(i *watershed.Informer[*corev1.Pod]) {
		watershed.IndexBy(i, func(p *corev1.Pod) []string {
			stale = append(stale, i.Connection().StaleSince)
			return []string{p.Spec.NodeName}
		})
	}
	runStored(t, dir, cfg, indexed, current)
	if len(stale) == 0 || slices.ContainsFunc(stale, time.Time.IsZero) {
		t.Errorf("the objects are stale since %v", stale)
	}
}

// forbidden answers requests for the namespace kube-system with 403.
type forbidden struct{ next http.RoundTripper }

func (f forbidden) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/namespaces/kube-system") {
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req,
		}, nil
	}
	return f.next.RoundTrip(req)
}

// TestStored_nothingWithoutIdentity has credentials that cannot read the UID of the cluster:
// another one could take its address.
func TestStored_nothingWithoutIdentity(t *testing.T) {
	server, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 5})
	expect.NoError(t, err)
	defer server.Close()
	cfg := server.Cluster(0).Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidden{next} })
	c, err := kube.FromConfig(cfg, nil)
	expect.NoError(t, err)
	defer c.CloseIdleConnections()
	d, err := disk.Open(t.TempDir(), nil)
	expect.NoError(t, err)
	defer d.Close()
	var log expect.Output
	i, err := watershed.New[*corev1.Pod](c, &watershed.Options[*corev1.Pod]{
		Disk: d, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	expect.NoError(t, i.WaitForSync(ctx))
	cancel()
	expect.NoError(t, <-done)
	if d.Storage().Has(c.Name()) || !strings.Contains(log.String(), disk.ErrUnidentified.Error()) {
		t.Errorf("files of the cluster: %v, log: %s", d.Storage().Has(c.Name()), log.String())
	}
}
