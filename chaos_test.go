// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var (
	rounds = flag.Int("chaos.rounds", 2, "how many rounds of faults to go through")
	writes = flag.Int("chaos.writes", 2000, "how many writes there are in a round")
)

// TestChaos writes at random while servers are killed and the network fails, and
// compares the informers with etcd after every round.
func TestChaos(t *testing.T) {
	c := kubetest.Start(t, nil)
	proxy := c.Proxy(t)
	rng := random(t)
	w := newWriter(t, c)
	m := newMirrors(t, connect(t, proxy.Config(c.Config())))
	for round := range *rounds {
		seed := rng.Uint64()
		began := time.Now()
		faults := w.round(rand.New(rand.NewPCG(seed, 1)), proxy, *writes)
		m.settle(t, c)
		t.Logf("round %d, seed %d: %v: %d writes and %d without an answer, equal to etcd; faults %v", round+1, seed,
			time.Since(began).Round(time.Millisecond), *writes, w.lost, faults)
		if t.Failed() {
			t.Fatalf("after round %d of seed %d", round+1, seed)
		}
	}
	m.report(t)
}

// writer changes pods, config maps and secrets through the API server. It ignores
// whether a write succeeded: the test compares with etcd in the end.
type writer struct {
	t       *testing.T
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
	// lost counts writes without a response, which may have happened or not.
	lost   int
	serial int
}

func newWriter(t *testing.T, c *kubetest.Cluster) *writer {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &writer{t: t, cluster: c, client: client}
}

// round writes n times while faults happen. It returns when they are undone and the
// server is ready.
func (w *writer) round(rng *rand.Rand, proxy *kubetest.Proxy, n int) []string {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	w.lost = 0
	var wg sync.WaitGroup
	var faults []string
	done := make(chan struct{})
	own := rand.New(rand.NewPCG(rng.Uint64(), 1))
	wg.Go(func() {
		for {
			faults = append(faults, w.fault(ctx, own, proxy))
			select {
			case <-done:
				return
			case <-time.After(time.Duration(own.IntN(500)) * time.Millisecond):
			}
		}
	})
	for done := 0; done < n && ctx.Err() == nil; {
		switch err := w.write(ctx, rng); {
		case err == nil:
			done++
		case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown: // no response
			w.lost++
			time.Sleep(10 * time.Millisecond) // the server may be down: do not try without a pause
		}
	}
	close(done)
	wg.Wait()
	proxy.Resume()
	proxy.TruncateAfter(0, 0)
	if err := errors.Join(proxy.Up(), w.cluster.WaitReady(ctx)); err != nil {
		w.t.Fatal(err)
	}
	return faults
}

// fault causes one fault, and undoes it if it would last.
func (w *writer) fault(ctx context.Context, rng *rand.Rand, proxy *kubetest.Proxy) string {
	// The faults last for different times.
	nap := func() { time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) }
	var err error
	var name string
	switch rng.IntN(9) {
	case 0:
		name = "kill API server"
		w.cluster.APIServer.Kill()
		nap()
		err = w.cluster.APIServer.Start(ctx)
	case 1:
		name = "kill etcd"
		w.cluster.Etcd.Kill()
		nap()
		err = errors.Join(w.cluster.Etcd.Start(ctx), w.cluster.WaitReady(ctx))
	case 2:
		name = "kill both"
		w.cluster.APIServer.Kill()
		w.cluster.Etcd.Kill()
		nap()
		err = errors.Join(w.cluster.Etcd.Start(ctx), w.cluster.APIServer.Start(ctx))
	case 3:
		name = "expire"
		_, err = w.cluster.Expire(ctx)
	case 4:
		name = "compact"
		_, err = w.cluster.Compact(ctx)
	case 5:
		name = "stall"
		proxy.Stall()
		time.Sleep(time.Duration(rng.IntN(6)) * time.Second) // stalls last for different times
		proxy.Resume()
	case 6:
		name = "truncate"
		proxy.TruncateAfter(int64(2000+rng.IntN(200_000)), 1+rng.IntN(3))
		proxy.Cut()
	case 7:
		name = "down"
		proxy.Down()
		nap()
		err = proxy.Up()
	default:
		name = "cut"
		proxy.Cut()
	}
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	return name
}

// write changes one object at random.
func (w *writer) write(ctx context.Context, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	w.serial++
	namespace, name := []string{"a", "b"}[rng.IntN(2)], fmt.Sprintf("x%d", rng.IntN(60))
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"serial": fmt.Sprint(w.serial)},
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, w.serial)
	core := w.client.CoreV1()
	var err error
	switch kind, act := rng.IntN(3), rng.IntN(4); {
	case kind == 0 && act == 0:
		one := int64(1)
		_, err = core.Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: &one,
		}}, metav1.CreateOptions{})
	case kind == 0 && act == 1:
		zero := int64(0)
		err = core.Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	case kind == 0:
		_, err = core.Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	case kind == 1 && act == 0:
		_, err = core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: meta,
			Data:       map[string]string{"k": fmt.Sprint(w.serial)},
		}, metav1.CreateOptions{})
	case kind == 1 && act == 1:
		err = core.ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	case kind == 1:
		_, err = core.ConfigMaps(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{})
	case act == 0:
		_, err = core.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	case act == 1:
		err = core.Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	default:
		_, err = core.Secrets(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// mirrors has informers of every type of value, each with a Watch loop that checks the
// changes it receives.
type mirrors struct {
	pods    *mirrored[*corev1.Pod]
	raw     *mirrored[*wire.Object]
	configs *mirrored[*unstructured.Unstructured]
	secrets *mirrored[*metav1.PartialObjectMetadata]
}

// mirrored is an informer and the versions that its loop has received.
type mirrored[T any] struct {
	*watershed.Informer[T]
	resource string
	mu       sync.Mutex
	known    map[string]uint64
}

func newMirrors(t *testing.T, c *kube.Cluster) *mirrors {
	return &mirrors{
		pods:    mirror[*corev1.Pod](t, c, "pods", watershed.Packed),
		raw:     mirror[*wire.Object](t, c, "pods", watershed.Fast),
		configs: mirror[*unstructured.Unstructured](t, c, "configmaps", watershed.Packed),
		secrets: mirror[*metav1.PartialObjectMetadata](t, c, "secrets", watershed.Fast),
	}
}

func mirror[T wire.Pointer[P], P any](
	t *testing.T, c *kube.Cluster, resource string, memory watershed.Memory,
) *mirrored[T] {
	i := informer(t, c, &watershed.Options[T]{
		Resource: corev1.SchemeGroupVersion.WithResource(resource),
		Memory:   memory,
		Logger:   slog.New(slog.DiscardHandler),
		Reflector: reflector.Options{
			Backoff: 100 * time.Millisecond, MaxBackoff: 2 * time.Second, Silence: 4 * time.Second,
			Timeout: 20 * time.Second,
		},
	})
	m := &mirrored[T]{Informer: i, resource: resource, known: map[string]uint64{}}
	running(t, i.Run)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for change := range i.Watch(ctx) {
			m.see(t, change)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return m
}

// see checks that an object never goes back and that each change fits the last one.
func (m *mirrored[T]) see(t *testing.T, c watershed.Change[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, now := c.Raw()
	had, known := m.known[c.Key]
	switch {
	case known != (c.Type != delta.Added):
		t.Errorf("%s: %s of %s, known at %d", m.resource, c.Type, c.Key, had)
	case known && old.Version() != had:
		t.Errorf("%s: %s of %s from %d, known at %d", m.resource, c.Type, c.Key, old.Version(), had)
	case now.Version() < had, c.Type == delta.Updated && now.Version() == had:
		t.Errorf("%s: %s of %s goes from %d to %d", m.resource, c.Type, c.Key, had, now.Version())
	}
	m.known[c.Key] = now.Version()
	if c.Type == delta.Deleted {
		delete(m.known, c.Key)
	}
}

// settle waits until all informers equal etcd, which only the API server itself writes
// to now.
func (m *mirrors) settle(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	within := time.Now().Add(90 * time.Second)
	equal(t, c, m.pods, objects[*corev1.Pod], within)
	equal(t, c, m.raw, raw, within)
	equal(t, c, m.configs, objects[*unstructured.Unstructured], within)
	equal(t, c, m.secrets, objects[*metav1.PartialObjectMetadata], within)
}

func equal[T any](
	t *testing.T, c *kubetest.Cluster, m *mirrored[T], content func(T, kubetest.Stored) string, within time.Time,
) {
	t.Helper()
	for {
		want, _ := truth(t, c, m.resource)
		diff := differences(m.Informer, want, content)
		if len(diff) == 0 {
			diff = m.behind(want)
		}
		if len(diff) == 0 {
			return
		}
		if time.Now().After(within) {
			t.Errorf("%s: %v\nstatus %+v", m.resource, diff, m.Status())
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// behind compares the versions that the loop has received.
func (m *mirrored[T]) behind(want map[string]kubetest.Stored) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var diff []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if m.known[key] != uint64(want[key].Revision) {
			diff = append(diff, fmt.Sprintf("its reader knows %s at %d, in etcd it is at %d", key, m.known[key],
				want[key].Revision))
		}
	}
	if len(m.known) != len(want) {
		diff = append(diff, fmt.Sprintf("its reader knows %d objects, in etcd there are %d", len(m.known), len(want)))
	}
	return diff
}

// report logs what the informers went through.
func (m *mirrors) report(t *testing.T) {
	for _, s := range []watershed.Status{m.pods.Status(), m.raw.Status(), m.configs.Status(), m.secrets.Status()} {
		r := s.Reflector
		t.Logf("%d objects at %d: %d lists, %d watches, %d failures, %d restores, %d dropped; last error %v",
			s.Objects, s.Version, r.Lists, r.Watches, r.Failures, r.Restores, r.Dropped, r.Err)
		if r.Restores > 0 || r.Dropped > 0 || s.Undecodable > 0 {
			t.Errorf("nothing was restored or undecodable here: %+v", s)
		}
	}
}
