// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// sourcesOf records the queries that a factory makes sources for.
type sourcesOf struct {
	server  *server
	queries []kube.Query
}

func (s *sourcesOf) source(cluster *kube.Cluster, q kube.Query) (reflector.Source[*wire.Object], error) {
	if cluster.Name() != "prod" {
		return nil, errors.New("not the factory's cluster: " + cluster.Name())
	}
	s.queries = append(s.queries, q)
	return s.server, nil
}

// unreachable returns a cluster that a test sends no request to.
func unreachable(t *testing.T) *kube.Cluster {
	t.Helper()
	cluster, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, &kube.Options{Name: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// leaseFrom leases an informer of a user's source, and fails the test if it fails.
func leaseFrom[T wire.Pointer[P], P any](
	t *testing.T, f *watershed.Factory, s *sourcesOf, opts *watershed.SharedOptions[T],
) *watershed.Lease[T] {
	t.Helper()
	var own watershed.SharedOptions[T]
	if opts != nil {
		own = *opts
	}
	own.NewSource = s.source
	l, err := watershed.Shared[T, P](f, &own)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestSharedFrom_livesLikeTheFactorys has two leases of a user's source. The factory makes
// it once, and runs, waits for, transforms, reports and frees it.
func TestSharedFrom_livesLikeTheFactorys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		s := &sourcesOf{server: newServer()}
		s.server.put("shop/a", func(p *corev1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} })
		report := new(watershed.Report)
		f := watershed.NewFactory(unreachable(t), &watershed.FactoryOptions{
			LabelSelector: "app=x", Drop: wire.ManagedFields, StopIdle: time.Minute, Report: report, Reflector: patient,
		})
		typed := leaseFrom[*corev1.Pod](t, f, s, nil)
		raw := leaseFrom(t, f, s, &watershed.SharedOptions[*wire.Object]{Resource: pods})
		expect.Equal(t, len(s.queries), 1)
		expect.Equal(t, s.queries[0].Resource, pods)
		expect.Equal(t, s.queries[0].LabelSelector, "app=x")

		stop := running(t, f.Run)
		if err := f.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, ok := typed.Get("shop/a")
		expect.Equal(t, ok && raw.HasSynced(), true)
		expect.Equal(t, len(p.ManagedFields), 0)
		expect.Equal(t, len(f.Status()[pods]), 1)
		expect.Equal(t, f.Status()[pods][0].Objects, 1)
		stats := report.Stats()
		expect.Equal(t, len(stats), 1)
		expect.Equal(t, stats[0].Cluster+" "+stats[0].Resource, "prod pods")

		leaseFrom(t, f, s, &watershed.SharedOptions[*corev1.Pod]{
			Namespace: "shop", LabelSelector: watershed.Everything,
		}).Close()
		expect.Equal(t, s.queries[1].Namespace+" "+s.queries[1].LabelSelector, "shop ")

		typed.Close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		expect.Equal(t, raw.Len(), 1) // is still leased
		raw.Close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		expect.Equal(t, len(f.Status()), 0)
		expect.Equal(t, len(s.server.streams), 0)
		again := leaseFrom[*corev1.Pod](t, f, s, nil)
		expect.Equal(t, len(s.queries), 3)
		if err := again.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect.Equal(t, again.Len(), 1)
		stop()
	})
}

// TestSharedFrom_besideShared leases pods of the cluster and of a user's source in either
// order. Each lease reads what it was made for.
func TestSharedFrom_besideShared(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		f := watershed.NewFactory(clusterOf(t, new(asked)), nil) // the cluster has no pods
		s := newServer()
		s.put("shop/a", nil)
		lease := map[bool]func() (*watershed.Lease[*corev1.Pod], error){
			true: func() (*watershed.Lease[*corev1.Pod], error) {
				return watershed.Shared(f, &watershed.SharedOptions[*corev1.Pod]{
					NewSource: func(*kube.Cluster, kube.Query) (reflector.Source[*wire.Object], error) {
						return s, nil
					},
				})
			},
			false: func() (*watershed.Lease[*corev1.Pod], error) { return watershed.Shared[*corev1.Pod](f, nil) },
		}
		objects := map[bool]int{}
		leases := map[bool]*watershed.Lease[*corev1.Pod]{}
		for _, own := range []bool{ownFirst, !ownFirst} {
			l, err := lease[own]()
			if err != nil {
				t.Fatal(err)
			}
			leases[own] = l
		}
		running(t, f.Run)
		if err := f.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for own, l := range leases {
			objects[own] = l.Len()
		}
		expect.Equal(t, objects, map[bool]int{true: 1, false: 0})
		expect.Equal(t, len(f.Status()[corev1.SchemeGroupVersion.WithResource("pods")]), 2)
	}
}

func TestSharedFrom_fails(t *testing.T) {
	f := watershed.NewFactory(unreachable(t), nil)
	broken := errors.New("broken")
	files := &watershed.SharedOptions[*corev1.Pod]{Resource: schema.GroupVersionResource{Resource: "files"}}
	for _, test := range []struct {
		err  error
		want string
	}{
		{broken, "source of files in prod: broken"},
		{nil, "source of files in prod: newSource returned nil"},
	} {
		own := *files
		own.NewSource = func(*kube.Cluster, kube.Query) (reflector.Source[*wire.Object], error) { return nil, test.err }
		_, err := watershed.Shared(f, &own)
		if err == nil || err.Error() != test.want || test.err != nil && !errors.Is(err, test.err) {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
	expect.Equal(t, len(f.Status()), 0)
	s := &sourcesOf{server: newServer()}
	leaseFrom(t, f, s, files)
	expect.Equal(t, len(s.queries), 1)
	unknown := &watershed.SharedOptions[*bytes.Buffer]{NewSource: s.source}
	if _, err := watershed.Shared(f, unknown); !errors.Is(err, watershed.ErrNoResource) {
		t.Errorf("error %v, want ErrNoResource", err)
	}
	expect.Equal(t, len(s.queries), 1)
}
