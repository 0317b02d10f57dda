// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// namespace is where the config maps are created.
const namespace = "watershed-example"

// options are those of the second part, which creates config maps.
type options struct {
	// objects is the number of config maps to create, size the size of each.
	objects, size int
}

// memory runs an informer twice, and measures the heap.
func memory(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) (err error) {
	cleanup, err := fill(ctx, cluster, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanup()) }()

	configMaps, err := watershed.New[*corev1.ConfigMap](cluster, &watershed.Options[*corev1.ConfigMap]{
		Namespace:     namespace,
		LabelSelector: "example=traps",
		Memory:        watershed.Fast, // so that the heap shows the objects
	})
	if err != nil {
		return err
	}
	report := func(when string) {
		fmt.Fprintf(out, "%-14s %2d objects, heap %2d MiB\n", when+":", configMaps.Len(), heap())
	}
	report("before")
	for _, when := range []string{"running", "running again"} {
		if err := once(ctx, configMaps, func() { report(when) }); err != nil {
			return err
		}
		report("stopped")
	}
	// The informer is still reachable, so this is not why memory was freed.
	runtime.KeepAlive(configMaps)
	return nil
}

// once runs the informer until it is complete.
func once(ctx context.Context, informer *watershed.Informer[*corev1.ConfigMap], complete func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- informer.Run(ctx) }()
	select {
	case <-informer.Synced():
		complete()
	case <-ctx.Done():
	}
	cancel()
	return <-ended
}

// fill creates the config maps with client-go, and cleanup deletes them.
func fill(ctx context.Context, cluster *kube.Cluster, o options) (cleanup func() error, err error) {
	cfg := cluster.Config()
	cfg.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	core := client.CoreV1()
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := core.Namespaces().Create(ctx, home, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	cleanup = func() error {
		// Ctrl-C must not leave them behind.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return core.Namespaces().Delete(after, namespace, metav1.DeleteOptions{})
	}
	data := map[string]string{"data": strings.Repeat("x", o.size)}
	for i := range o.objects {
		_, err := core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("config-%d", i), Labels: map[string]string{"example": "traps"},
			},
			Data: data,
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, errors.Join(err, cleanup())
		}
	}
	return cleanup, nil
}

// heap returns the heap in use, in MiB, after two garbage collections: pools take two
// to empty.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return (m.HeapAlloc + 1<<19) >> 20
}
