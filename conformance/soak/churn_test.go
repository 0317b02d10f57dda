// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// colorLabel changes, so that objects begin and stop matching selectors.
	colorLabel = "color"
	// siteLabel is the label by which a site counts its pods.
	siteLabel = "app.kubernetes.io/name"
	// workers is how many writes run at once.
	workers = 8
)

var (
	namespaces = []string{"soak-0", "soak-1", "soak-2", "soak-3"}
	colors     = []any{"red", "blue", "green", nil}
)

// churn makes random changes to a cluster. The results of its writes do not matter: the
// truth is read from etcd in the end.
type churn struct {
	client *dynamic.DynamicClient
	seed   uint64
	// rate is the number of writes per second, if the cluster can process them.
	rate int

	writes, refused, lost atomic.Int64
}

func newChurn(t *testing.T, c *kubetest.Cluster, seed uint64, rate int) *churn {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := typed.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &churn{client: client, seed: seed, rate: rate}
}

// run writes until ctx ends and returns when the last write has its response.
func (c *churn) run(ctx context.Context) {
	permits := make(chan struct{})
	var all sync.WaitGroup
	for n := range workers {
		rng := rand.New(rand.NewPCG(c.seed, uint64(n)))
		all.Go(func() {
			for range permits {
				c.count(c.write(rng))
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(c.rate))
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			permits <- struct{}{}
		case <-ctx.Done():
		}
	}
	tick.Stop()
	close(permits)
	all.Wait()
}

func (c *churn) count(err error) {
	switch {
	case err == nil:
		c.writes.Add(1)
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown: // no answer
		c.lost.Add(1)
	default:
		c.refused.Add(1)
	}
}

// write changes one object. If it does not exist, it is created. A write that has begun
// is always finished: a response that is not awaited may come late.
func (c *churn) write(rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	namespace := namespaces[rng.IntN(len(namespaces))]
	switch n := rng.IntN(1000); {
	case n < 2:
		return c.deleteColor(ctx, rng, namespace)
	case n < 10:
		// This deletes an object that the operator created.
		return c.delete(ctx, kinds[6], namespace, siteName(rng.IntN(siteNames)))
	case n < 60:
		return c.change(ctx, siteKind, rng, namespace, siteName(rng.IntN(siteNames)))
	}
	k := kinds[rng.IntN(len(kinds))]
	return c.change(ctx, k, rng, namespace, objectName(rng.IntN(k.names)))
}

func (c *churn) change(ctx context.Context, k *kind, rng *rand.Rand, namespace, name string) error {
	var err error
	switch act := rng.IntN(10); {
	case act < 2:
		err = c.delete(ctx, k, namespace, name)
	case act < 6:
		err = c.patch(ctx, k, namespace, name, fields{
			"metadata": fields{"labels": fields{colorLabel: colors[rng.IntN(len(colors))]}},
		})
	default:
		err = c.patch(ctx, k, namespace, name, k.change(rng))
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	labels := fields{siteLabel: siteName(rng.IntN(siteNames))}
	if color := colors[rng.IntN(len(colors))]; color != nil {
		labels[colorLabel] = color
	}
	_, err = c.client.Resource(k.GroupVersionResource).Namespace(namespace).Create(ctx, k.object(name, labels, rng),
		metav1.CreateOptions{})
	return err
}

func (c *churn) patch(ctx context.Context, k *kind, namespace, name string, what fields) error {
	raw, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("patch of %s: %w", k.name, err)
	}
	_, err = c.client.Resource(k.GroupVersionResource).Namespace(namespace).Patch(ctx, name, k.patchType(), raw,
		metav1.PatchOptions{})
	return err
}

func (c *churn) delete(ctx context.Context, k *kind, namespace, name string) error {
	return c.client.Resource(k.GroupVersionResource).Namespace(namespace).Delete(ctx, name, background())
}

// deleteColor deletes many objects at once.
func (c *churn) deleteColor(ctx context.Context, rng *rand.Rand, namespace string) error {
	k := kinds[rng.IntN(len(kinds))]
	opts := metav1.ListOptions{LabelSelector: colorLabel + "=green"}
	return c.client.Resource(k.GroupVersionResource).Namespace(namespace).DeleteCollection(ctx, background(), opts)
}

// background makes the pods of deleted objects be deleted too.
func background() metav1.DeleteOptions {
	policy := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}
