// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// myFactory is the whole factory: a map from the type of objects to their informer.
type myFactory struct {
	cluster   *kube.Cluster
	namespace string
	informers map[reflect.Type]informer
	running   sync.WaitGroup
}

// informer has the methods of an informer that do not depend on the type of its objects.
type informer interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
	Len() int
}

func newMyFactory(cluster *kube.Cluster, namespace string) *myFactory {
	return &myFactory{cluster: cluster, namespace: namespace, informers: map[reflect.Type]informer{}}
}

// informerOf returns the factory's informer of a type. The first call creates it. Opts
// of later calls are ignored: the map has no room for them.
func informerOf[T wire.Pointer[P], P any](f *myFactory, opts *watershed.Options[T]) (*watershed.Informer[T], error) {
	if existing, ok := f.informers[reflect.TypeFor[T]()]; ok {
		return existing.(*watershed.Informer[T]), nil
	}
	if opts == nil {
		opts = &watershed.Options[T]{}
	}
	opts.Namespace = f.namespace
	created, err := watershed.New(f.cluster, opts)
	if err != nil {
		return nil, err
	}
	f.informers[reflect.TypeFor[T]()] = created
	return created, nil
}

// Start runs the informers that the map has now, until ctx ends.
func (f *myFactory) Start(ctx context.Context) {
	for _, i := range f.informers {
		f.running.Go(func() {
			if err := i.Run(ctx); err != nil {
				slog.Error("informer ended", "err", err)
			}
		})
	}
}

// Wait waits until the informers have ended.
func (f *myFactory) Wait() { f.running.Wait() }

// WaitForSync waits until all informers have synced.
func (f *myFactory) WaitForSync(ctx context.Context) error {
	for _, i := range f.informers {
		if err := i.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// String returns the types in the map and the number of their objects.
func (f *myFactory) String() string {
	var all []string
	for t, i := range f.informers {
		all = append(all, fmt.Sprintf("%s (%d)", t, i.Len()))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
