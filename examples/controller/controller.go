// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// annotation is the annotation that the controller owns.
const annotation = "example.watershed.dev/pods"

// maxBackoff limits how long a namespace waits for its next attempt. client-go's limit
// is 1000 s, so a server that was down for a minute would be tried again a minute later.
const maxBackoff = 5 * time.Second

// controller keeps the annotation of every namespace up to date.
type controller struct {
	// client is only used to write. Everything is read from the copies.
	client     kubernetes.Interface
	factory    *watershed.Factory
	pods       *watershed.Lease[*corev1.Pod]
	namespaces *watershed.Lease[*corev1.Namespace]
	// queue has the names of namespaces to reconcile. It merges equal names, and it
	// never returns a name that another worker is busy with.
	queue workqueue.TypedRateLimitingInterface[string]

	// mu guards out.
	mu  sync.Mutex
	out io.Writer
}

// newController returns a controller that sends at most qps writes per second.
func newController(out io.Writer, cluster *kube.Cluster, qps float64) (*controller, error) {
	cfg := cluster.Config()
	cfg.QPS, cfg.Burst = float32(qps), 1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	factory := watershed.NewFactory(cluster, nil)
	pods, err := watershed.Shared[*corev1.Pod](factory, nil)
	if err != nil {
		return nil, err
	}
	namespaces, err := watershed.Shared[*corev1.Namespace](factory, nil)
	if err != nil {
		return nil, err
	}
	// The delay of a namespace doubles with each failure in a row, from 5 ms to
	// maxBackoff. All retries together are limited to 10 per second.
	limiter := workqueue.NewTypedWithMaxWaitRateLimiter(workqueue.DefaultTypedControllerRateLimiter[string](),
		maxBackoff)
	return &controller{
		client: client, factory: factory, pods: pods, namespaces: namespaces, out: out,
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
	}, nil
}

// handle adds handlers that put the namespace of each change into the queue.
func (c *controller) handle() []*watershed.Registration {
	return []*watershed.Registration{
		c.pods.Handle(watershed.Handler[*corev1.Pod]{
			Name:   "pods",
			Add:    func(p *corev1.Pod, _ bool) { c.queue.Add(p.Namespace) },
			Update: func(_, now *corev1.Pod) { c.queue.Add(now.Namespace) },
			Delete: func(last *corev1.Pod, _ bool) { c.queue.Add(last.Namespace) },
		}),
		c.namespaces.Handle(watershed.Handler[*corev1.Namespace]{
			Name:   "namespaces",
			Add:    func(n *corev1.Namespace, _ bool) { c.queue.Add(n.Name) },
			Update: func(_, now *corev1.Namespace) { c.queue.Add(now.Name) },
		}),
	}
}

// next reconciles the next namespace in the queue. It returns false when the queue is
// shut down and empty.
func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	switch err := c.reconcile(ctx, name); {
	case err == nil:
		c.queue.Forget(name)
	case c.queue.ShuttingDown(): // which ignores retries
		c.say("%s: given up: %v", name, err)
	default:
		c.say("%s: retry %d: %v", name, c.queue.NumRequeues(name)+1, err)
		c.queue.AddRateLimited(name)
	}
	return true
}

// reconcile compares the annotation of a namespace with its pods, and corrects it. The
// event that caused the call does not matter, only the current state, so it is correct
// to merge events and to repeat a call.
//
// The snapshot of namespaces may not have the last write of this controller yet. If it
// therefore agrees with the pods by accident, the write arrives later as an Update, and
// the namespace is reconciled again.
func (c *controller) reconcile(ctx context.Context, name string) error {
	namespace, ok := c.namespaces.Get(name)
	if !ok {
		return nil // it was deleted, and its pods with it
	}
	want := summary(c.pods.Snapshot(), name)
	if namespace.Annotations[annotation] == want {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation: want}},
	})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.say("%s: %s", name, want)
	return nil
}

// summary returns the number of pods of a namespace in each phase, such as "1 Pending,
// 2 Running".
func summary(pods watershed.Snapshot[*corev1.Pod], namespace string) string {
	phases := map[corev1.PodPhase]int{}
	for _, pod := range pods.Namespace(namespace) {
		phases[pod.Status.Phase]++
	}
	return format(phases)
}

func format(phases map[corev1.PodPhase]int) string {
	if len(phases) == 0 {
		return "no pods"
	}
	var counts []string
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		counts = append(counts, fmt.Sprintf("%d %s", phases[phase], phase))
	}
	return strings.Join(counts, ", ")
}

// say prints a line. Workers call it concurrently.
func (c *controller) say(form string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, form+"\n", args...)
}
