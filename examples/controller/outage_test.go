// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

var seed = flag.Uint64("seed", 0, "the seed of the random changes; 0 takes another one each time")

const (
	kills = 2
	// shops is the number of namespaces with pods. With qps writes per second,
	// namespaces are queued whenever the server is killed.
	shops   = 12
	qps     = 10
	changes = 150 // before each kill
	// patience is how long any step may take on a busy machine.
	patience = 90 * time.Second
)

// TestRun_survivesKillsOfTheServer changes pods at random, kills the API server while the
// controller works, changes pods in etcd meanwhile, and compares every annotation in etcd
// with the pods in etcd at the end.
func TestRun_survivesKillsOfTheServer(t *testing.T) {
	w := newPodCluster(t)
	out, stop := w.start(options{workers: 4, qps: qps, drain: patience}, func(*controller) {})
	out.await(t, "# synced: ")
	for kill := range kills {
		w.settle() // from here on, all failures are due to this kill
		for range changes {
			w.change(t.Context())
		}
		t.Logf("kill %d: %d lines printed", kill+1, strings.Count(out.String(), "\n"))
		w.cluster.APIServer.Kill()
		if err := w.cluster.PutPods(t.Context(), w.unseen(kill)...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond) // how long it is away
		if err := w.cluster.APIServer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	// Pods that are deleted in etcd have no last update: only their deletion is watched.
	if err := w.cluster.Erase(t.Context(), schema.GroupResource{Resource: "pods"}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	stop()

	text := out.String()
	retries := strings.Count(text, ": retry ")
	t.Logf("%d writes, %d retries", strings.Count(text, "\n")-retries-3, retries)
	if retries == 0 {
		t.Error("no write failed: the server was not killed during work")
	}
	if _, drained, ok := strings.Cut(text, "\n# draining: "); !ok || !strings.HasPrefix(text, "# synced: ") ||
		!strings.HasSuffix(drained, "\n# stopped\n") {
		t.Errorf("printed\n%s", text)
	}
	// The last line about a namespace is its final state.
	want := w.expected()
	for name, got := range written(text) {
		if got != want[name] {
			t.Errorf("the last line about %s is %q, its pods are %q", name, got, want[name])
		}
	}
}

// TestRun_drainsTheQueue interrupts the controller while all namespaces but one are
// queued.
func TestRun_drainsTheQueue(t *testing.T) {
	w := newPodCluster(t)
	added := &recorder{names: map[string]bool{}}
	out, stop := w.start(options{workers: 1, qps: 4, drain: patience}, func(c *controller) {
		added.TypedRateLimitingInterface = c.queue
		added.has = func(key string) bool { _, ok := c.pods.Get(key); return ok }
		c.queue = added
	})
	out.await(t, "# synced: ")
	w.settle()
	var pods []*corev1.Pod
	for shop := range shops {
		pods = append(pods, pod(shop, "late", corev1.PodPending))
	}
	if err := w.cluster.PutPods(t.Context(), pods...); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); added.count() < shops; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d namespaces were queued", added.count(), shops)
		}
	}
	stop() // without waiting for the writes
	if diff := cmp.Diff(w.expected(), w.annotated()); diff != "" {
		t.Errorf("annotations in etcd (-pods in etcd +annotations):\n%s", diff)
	}
	if !strings.HasSuffix(out.String(), ": 1 Pending\n# stopped\n") ||
		strings.Contains(out.String(), "# draining: 0 ") {
		t.Errorf("printed\n%s", out.String())
	}
}

// podCluster is a cluster with pods to change at random.
type podCluster struct {
	*testing.T
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
	rng     *rand.Rand
}

func newPodCluster(t *testing.T) *podCluster {
	w := &podCluster{T: t, cluster: kubetest.Start(t, &kubetest.Options{Name: "controller"})}
	number := *seed
	if number == 0 {
		number = rand.Uint64()
	}
	t.Logf("seed %d: repeat with -seed", number)
	w.rng = rand.New(rand.NewPCG(number, 1))
	client, err := kubernetes.NewForConfig(w.cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	w.client = client
	for shop := range shops {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shopName(shop)}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// start runs a controller after prepare was called with it. Stop interrupts it and
// waits until it has ended.
func (w *podCluster) start(o options, prepare func(*controller)) (out *output, stop func()) {
	cluster, err := kube.FromConfig(w.cluster.Config(), nil)
	if err != nil {
		w.Fatal(err)
	}
	out = &output{}
	c, err := newController(out, cluster, o.qps)
	if err != nil {
		w.Fatal(err)
	}
	prepare(c)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.run(ctx, o); err != nil {
			w.Error(err)
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
		cluster.CloseIdleConnections()
	}
	w.Cleanup(stop)
	return out, stop
}

func shopName(shop int) string { return fmt.Sprintf("shop-%02d", shop) }

func pod(shop int, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shopName(shop), Name: name, UID: types.UID(shopName(shop) + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// change creates, changes or deletes one pod through the API server. It ignores whether
// that succeeded: the test compares with etcd in the end.
func (w *podCluster) change(ctx context.Context) {
	shop, name := w.rng.IntN(shops), fmt.Sprint("pod-", w.rng.IntN(5))
	pods := w.client.CoreV1().Pods(shopName(shop))
	switch w.rng.IntN(4) {
	case 0:
		_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	case 1:
		phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}
		patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phases[w.rng.IntN(len(phases))])
		_, _ = pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	default:
		_, _ = pods.Create(ctx, pod(shop, name, ""), metav1.CreateOptions{})
	}
}

// unseen returns pods to write into etcd while no API server runs.
func (w *podCluster) unseen(kill int) []*corev1.Pod {
	var pods []*corev1.Pod
	for n := range 5 {
		pods = append(pods, pod(w.rng.IntN(shops), fmt.Sprintf("unseen-%d-%d", kill, n), corev1.PodRunning))
	}
	return pods
}

// settle waits until the annotations in etcd are those of the pods in etcd.
func (w *podCluster) settle() {
	w.Helper()
	var diff string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if diff = cmp.Diff(w.expected(), w.annotated()); diff == "" {
			return
		}
	}
	w.Fatalf("annotations in etcd (-pods in etcd +annotations):\n%s", diff)
}

// expected returns the annotation that every namespace should have, from the pods in
// etcd.
func (w *podCluster) expected() map[string]string {
	w.Helper()
	phases := map[string]map[corev1.PodPhase]int{}
	for _, o := range w.truth("namespaces") {
		phases[o.Meta.GetName()] = map[corev1.PodPhase]int{}
	}
	for _, o := range w.truth("pods") {
		phases[o.Meta.GetNamespace()][o.Object.(*corev1.Pod).Status.Phase]++
	}
	all := map[string]string{}
	for name, counts := range phases {
		all[name] = format(counts)
	}
	return all
}

// annotated returns the annotation of every namespace in etcd.
func (w *podCluster) annotated() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, o := range w.truth("namespaces") {
		all[o.Meta.GetName()] = o.Meta.GetAnnotations()[annotation]
	}
	return all
}

func (w *podCluster) truth(resource string) []kubetest.Stored {
	w.Helper()
	truth, err := w.cluster.Truth(w.Context(), schema.GroupResource{Resource: resource})
	if err != nil {
		w.Fatal(err)
	}
	return truth.Objects
}

// written returns the last summary that was printed for each namespace. A write that
// failed for the controller may have happened, so a namespace whose last line is about a
// retry is left out.
func written(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case strings.HasPrefix(name, "#"):
		case strings.HasPrefix(what, "retry "):
			delete(all, name)
		default:
			all[name] = what
		}
	}
	return all
}

// output collects the printed lines.
type output struct{ expect.Output }

func (o *output) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(o.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("printed\n%swithout %q", o.String(), text)
		}
	}
}

// recorder is a queue that records the namespaces that were added when the copy had
// their late pod.
type recorder struct {
	workqueue.TypedRateLimitingInterface[string]
	has func(key string) bool

	mu    sync.Mutex
	names map[string]bool
}

func (r *recorder) Add(name string) {
	late := r.has(name + "/late")
	r.TypedRateLimitingInterface.Add(name)
	if late {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.names[name] = true
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}
