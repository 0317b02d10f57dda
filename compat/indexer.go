// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
)

// indexer is the store of an informer in client-go's interface. Every call reads one
// snapshot; results are in key order.
type indexer struct {
	state
	prototype *prototype

	// naming guards indexes.
	naming  sync.RWMutex
	indexes map[string]index
}

// index is one index. The namespace index uses the order of the keys and has no tree.
type index struct {
	values cache.IndexFunc
	tree   *watershed.Index[runtime.Object, string]
}

var _ cache.Indexer = (*indexer)(nil)

func newIndexer(engine *watershed.Informer[runtime.Object], p *prototype, logger *slog.Logger) *indexer {
	x := &indexer{prototype: p, indexes: map[string]index{}}
	x.init(engine, logger)
	return x
}

// List returns all objects.
func (x *indexer) List() []any {
	now := x.now()
	out := make([]any, 0, now.Len())
	for _, obj := range now.All() {
		out = append(out, obj)
	}
	return out
}

// ListKeys returns all keys.
func (x *indexer) ListKeys() []string {
	now := x.now()
	out := make([]string, 0, now.Len())
	for key := range now.Raw() {
		out = append(out, key)
	}
	return out
}

// Get returns the object that has the key of obj.
func (x *indexer) Get(obj any) (any, bool, error) {
	key, err := storeKey(obj)
	if err != nil {
		return nil, false, err
	}
	return x.GetByKey(key)
}

// GetByKey returns the object that has a key.
func (x *indexer) GetByKey(key string) (any, bool, error) {
	now, err := x.read()
	if err != nil {
		return nil, false, err
	}
	if obj, ok := now.Get(key); ok {
		return obj, true, nil
	}
	return nil, false, nil
}

// named returns an index by its name.
func (x *indexer) named(name string) (index, error) {
	x.naming.RLock()
	defer x.naming.RUnlock()
	i, ok := x.indexes[name]
	if !ok {
		// This is client-go's error text.
		return i, fmt.Errorf("Index with name %s does not exist", name)
	}
	return i, nil
}

// Index returns the objects that share an index value with obj.
func (x *indexer) Index(name string, obj any) ([]any, error) {
	i, err := x.named(name)
	if err != nil {
		return nil, err
	}
	values, err := i.values(obj)
	if err != nil {
		return nil, err
	}
	now, err := x.read()
	if err != nil {
		return nil, err
	}
	if len(values) == 1 {
		return i.objects(now, values[0]), nil
	}
	keys := sets.New[string]()
	for _, value := range values {
		keys.Insert(i.keys(now, value)...)
	}
	out := make([]any, 0, keys.Len())
	for _, key := range sets.List(keys) {
		if obj, ok := now.Get(key); ok {
			out = append(out, obj)
		}
	}
	return out, nil
}

// ByIndex returns the objects that have an index value.
func (x *indexer) ByIndex(name, value string) ([]any, error) {
	i, err := x.named(name)
	if err != nil {
		return nil, err
	}
	now, err := x.read()
	if err != nil {
		return nil, err
	}
	return i.objects(now, value), nil
}

// IndexKeys returns the keys of the objects that have an index value.
func (x *indexer) IndexKeys(name, value string) ([]string, error) {
	i, err := x.named(name)
	if err != nil {
		return nil, err
	}
	now, err := x.read()
	if err != nil {
		return nil, err
	}
	return i.keys(now, value), nil
}

// ListIndexFuncValues returns all values of an index, none if there is no such index.
func (x *indexer) ListIndexFuncValues(name string) []string {
	i, err := x.named(name)
	if err != nil {
		return []string{}
	}
	now := x.now()
	if i.tree != nil {
		return slices.AppendSeq([]string{}, i.tree.ValuesIn(now))
	}
	values := sets.New[string]()
	for key := range now.Raw() {
		values.Insert(namespaceOf(key))
	}
	return sets.List(values)
}

// GetIndexers returns the functions of all indexes. The caller owns the map.
func (x *indexer) GetIndexers() cache.Indexers {
	x.naming.RLock()
	defer x.naming.RUnlock()
	out := make(cache.Indexers, len(x.indexes))
	for name, i := range x.indexes {
		out[name] = i.values
	}
	return out
}

// AddIndexers adds indexes, all or none.
func (x *indexer) AddIndexers(indexers cache.Indexers) error {
	x.naming.Lock()
	defer x.naming.Unlock()
	if both := sets.KeySet(x.indexes).Intersection(sets.KeySet(indexers)); both.Len() > 0 {
		return fmt.Errorf("indexer conflict: %v", both)
	}
	x.addLocked(indexers)
	return nil
}

// add adds the first indexes.
func (x *indexer) add(indexers cache.Indexers) {
	x.naming.Lock()
	defer x.naming.Unlock()
	x.addLocked(indexers)
}

func (x *indexer) addLocked(indexers cache.Indexers) {
	for name, values := range maps.All(indexers) {
		i := index{values: values}
		if !isNamespace(values) {
			i.tree = watershed.IndexBy(x.engine, func(obj runtime.Object) []string {
				out, err := values(obj)
				if err != nil {
					// The engine recovers and leaves the object out of the index.
					panic(fmt.Errorf("index %s: %w", name, err))
				}
				return out
			})
		}
		x.indexes[name] = i
	}
}

// isNamespace reports whether a function is client-go's namespace index function.
func isNamespace(values cache.IndexFunc) bool {
	return reflect.ValueOf(values).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// objects returns the objects that have a value.
func (i index) objects(now snapshot, value string) []any {
	out := []any{}
	switch {
	case i.tree != nil:
		for obj := range i.tree.GetIn(now, value) {
			out = append(out, obj)
		}
	case value != "":
		for _, obj := range now.Namespace(value) {
			out = append(out, obj)
		}
	default:
		for _, key := range i.keys(now, value) {
			if obj, ok := now.Get(key); ok {
				out = append(out, obj)
			}
		}
	}
	return out
}

// keys returns the keys of the objects that have a value.
func (i index) keys(now snapshot, value string) []string {
	if i.tree != nil {
		return slices.AppendSeq([]string{}, i.tree.KeysIn(now, value))
	}
	out := []string{}
	for key := range now.RawNamespace(value) { // all keys for "", the namespace of cluster-scoped objects
		if namespaceOf(key) == value {
			out = append(out, key)
		}
	}
	return out
}

// Add stores an object.
func (x *indexer) Add(obj any) error { return x.Update(obj) }

// Update stores an object. Unlike in client-go, handlers are notified.
func (x *indexer) Update(obj any) error {
	c, err := x.stored(obj)
	if err != nil {
		return err
	}
	return x.write(c)
}

// stored returns the change that stores an object, whatever the stored version.
func (x *indexer) stored(obj any) (change, error) {
	key, err := storeKey(obj)
	if err != nil {
		return change{}, err
	}
	o, err := x.prototype.encode(obj)
	if err != nil {
		return change{}, fmt.Errorf("store %s: %w", key, err)
	}
	return change{Type: delta.Replaced, Missed: true, Key: key, Object: o, Version: o.Version()}, nil
}

// Delete removes the object that has the key of obj. After the informer has stopped it
// does nothing.
func (x *indexer) Delete(obj any) error {
	key, err := storeKey(obj)
	if err != nil {
		return err
	}
	for missed := range 2 {
		last, ok := x.current().GetRaw(key)
		if !ok {
			return nil
		}
		// A newer state may be stored meanwhile. The first deletion does not remove it,
		// the second does.
		if x.write(change{Type: delta.Deleted, Missed: missed > 0, Key: key, Object: last}) != nil {
			return nil // the informer has stopped
		}
	}
	return nil
}

// Replace replaces all objects by a list. After the informer has stopped, an empty list
// frees its objects at once, as in client-go, and any other list is an error.
func (x *indexer) Replace(list []any, version string) error {
	changes := make([]change, 0, len(list)+1)
	listed := sets.New[string]()
	for _, obj := range list {
		c, err := x.stored(obj)
		if err != nil {
			return err
		}
		listed.Insert(c.Key)
		changes = append(changes, c)
	}
	for key, o := range x.current().Raw() {
		if !listed.Has(key) {
			changes = append(changes, change{Type: delta.Deleted, Missed: true, Key: key, Object: o})
		}
	}
	changes = append(changes, change{Type: delta.Bookmark, Missed: true, Version: number(version)})
	err := x.write(changes...)
	if err != nil && len(list) == 0 {
		x.clear(number(version))
		return nil
	}
	return err
}

// Resync does nothing, as in client-go.
func (x *indexer) Resync() error { return nil }

// Bookmark records that the state has reached a version. After the informer has stopped
// it does nothing.
func (x *indexer) Bookmark(version string) {
	if n := number(version); n > 0 {
		_ = x.write(change{Type: delta.Bookmark, Version: n}) // fails only if the informer has stopped
	}
}

// LastStoreSyncResourceVersion returns the newest version of the state, "" if there is
// none.
func (x *indexer) LastStoreSyncResourceVersion() string {
	if version := x.current().version; version > 0 {
		return strconv.FormatUint(version, 10)
	}
	return ""
}

// number returns a version as a number, 0 if it is not a number.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
