// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// kinds reads the namespace default, which every cluster has, in four ways.
func kinds(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
	factory := watershed.NewFactory(cluster, nil)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = factory.Run(ctx)
	})
	var err error
	for _, show := range []func(context.Context, io.Writer, *watershed.Factory) error{
		kindOf[*corev1.Namespace],
		kindOf[*unstructured.Unstructured],
		kindOf[*metav1.PartialObjectMetadata],
		rawKind,
	} {
		if err = show(ctx, out, factory); err != nil {
			break
		}
	}
	cancel()
	wg.Wait()
	return errors.Join(err, runErr)
}

// object is a pointer to an object that has a kind.
type object[P any] interface {
	wire.Pointer[P]
	runtime.Object
}

func kindOf[T object[P], P any](ctx context.Context, out io.Writer, factory *watershed.Factory) error {
	namespace, err := namespaceAs[T](ctx, factory)
	if err != nil {
		return err
	}
	apiVersion, kind := namespace.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	fmt.Fprintf(out, "%-32T apiVersion %s, kind %s\n", namespace, apiVersion, kind)
	return nil
}

// rawKind prints the kind from the bytes, without decoding them.
func rawKind(ctx context.Context, out io.Writer, factory *watershed.Factory) error {
	namespace, err := namespaceAs[*wire.Object](ctx, factory)
	if err != nil {
		return err
	}
	apiVersion, kind := namespace.GroupVersionKind().ToAPIVersionAndKind()
	fmt.Fprintf(out, "%-32T apiVersion %s, kind %s\n", namespace, apiVersion, kind)
	return nil
}

// namespaceAs returns the namespace default as a T.
func namespaceAs[T wire.Pointer[P], P any](ctx context.Context, factory *watershed.Factory) (T, error) {
	lease, err := watershed.Shared[T](factory, &watershed.SharedOptions[T]{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
	})
	if err != nil {
		return nil, err
	}
	defer lease.Close()
	if err := factory.WaitForSync(ctx); err != nil {
		return nil, err
	}
	namespace, ok := lease.Get(metav1.NamespaceDefault)
	if !ok {
		return nil, errors.New("there is no namespace default")
	}
	return namespace, nil
}
