// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// List calls add with the objects of a namespace, "" for all, that a selector matches. It
// is [cache.ListAllByNamespace], which client-go's listers call, and works with any
// indexer. That function sees the selector only after the indexer has returned the
// objects, so an indexer of this package must decode all of the namespace. List decodes
// only those that match, and finds a few among many by a column of the label: see
// [watershed.Snapshot.Select].
func List(from cache.Indexer, namespace string, selector labels.Selector, add cache.AppendFunc) error {
	x, ok := from.(*indexer)
	if !ok {
		return cache.ListAllByNamespace(from, namespace, selector, add)
	}
	now, err := x.read()
	if err != nil {
		return err
	}
	for _, obj := range now.Select(namespace, selector) {
		add(obj)
	}
	return nil
}
