// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// Pods is the resource that most benchmarks read.
var Pods = corev1.SchemeGroupVersion.WithResource("pods")

// Reader reads all n pods of a cluster. It returns when it has them, with a value
// that keeps them alive.
type Reader func(ctx context.Context, cfg *rest.Config, n int) (any, error)

// ReadBare is a Reader that reads the bytes of the list and discards them.
func ReadBare(ctx context.Context, cfg *rest.Config, _ int) (any, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/pods?resourceVersion=0", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", Protobuf)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return nil, err
}

// ReadRaw is a Reader with an informer of objects as bytes, which are not packed.
func ReadRaw(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs(ctx, cfg, n, &watershed.Options[*wire.Object]{Resource: Pods, Memory: watershed.Fast})
}

// ReadTyped is a Reader with a typed informer that does not pack.
func ReadTyped(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs(ctx, cfg, n, &watershed.Options[*corev1.Pod]{Memory: watershed.Fast})
}

// ReadPacked is a Reader with a typed informer that packs.
func ReadPacked(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs(ctx, cfg, n, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed})
}

func readOurs[T wire.Pointer[P], P any](
	ctx context.Context, cfg *rest.Config, n int, opts *watershed.Options[T],
) (any, error) {
	cluster, err := kube.FromConfig(cfg, nil)
	if err != nil {
		return nil, err
	}
	i, err := watershed.New(cluster, opts)
	if err != nil {
		return nil, err
	}
	go func() { _ = i.Run(ctx) }() // lives as long as the process
	select {
	case <-i.Synced():
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %+v", ctx.Err(), i.Status())
	}
	return i, CheckCount(i.Len(), n)
}

// PodInformer returns client-go's typed informer of pods and its factory, which starts it.
func PodInformer(cfg *rest.Config) (informers.SharedInformerFactory, cache.SharedIndexInformer, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	return f, f.Core().V1().Pods().Informer(), nil
}

// ReadClientGo is a Reader with client-go's typed informer.
func ReadClientGo(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	f, i, err := PodInformer(cfg)
	if err != nil {
		return nil, err
	}
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	return i, CheckCount(len(i.GetStore().ListKeys()), n)
}

// ReadDynamic is a Reader with client-go's dynamic informer.
func ReadDynamic(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	f := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	i := f.ForResource(Pods).Informer()
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	return i, CheckCount(len(i.GetStore().ListKeys()), n)
}

// CheckCount returns an error if a reader has another number of pods than it should.
func CheckCount(got, want int) error {
	if got != want {
		return errors.New("got " + strconv.Itoa(got) + " pods")
	}
	return nil
}
