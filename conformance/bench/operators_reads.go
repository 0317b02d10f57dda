// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operatorReads are the reads of reconciles. After an error they do nothing.
type operatorReads struct {
	ctx context.Context
	// main and selected are the two caches of the operator.
	main, selected client.Reader
	err            error
	// gets and lists count reads, and objects those that lists returned.
	gets, lists, objects int
}

func (r *operatorReads) get(key types.NamespacedName, into client.Object) {
	r.getFrom(r.main, key, into)
}

// getSelected reads from the second cache.
func (r *operatorReads) getSelected(key types.NamespacedName, into client.Object) {
	r.getFrom(r.selected, key, into)
}

func (r *operatorReads) getFrom(c client.Reader, key types.NamespacedName, into client.Object) {
	if r.err != nil {
		return
	}
	r.gets++
	r.err = c.Get(r.ctx, key, into)
}

func (r *operatorReads) list(into client.ObjectList, opts ...client.ListOption) {
	r.listFrom(r.main, into, opts)
}

// listSelected reads from the second cache.
func (r *operatorReads) listSelected(into client.ObjectList, opts ...client.ListOption) {
	r.listFrom(r.selected, into, opts)
}

func (r *operatorReads) listFrom(c client.Reader, into client.ObjectList, opts []client.ListOption) {
	if r.err != nil {
		return
	}
	r.lists++
	r.err = c.List(r.ctx, into, opts...)
	r.objects += meta.LenList(into)
}
