// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
)

// orderedStore is client-go's store, listing its keys in order; see the package
// documentation.
type orderedStore struct{ cache.Store }

func (s orderedStore) ListKeys() []string {
	keys := s.Store.ListKeys()
	slices.Sort(keys)
	return keys
}

// private returns a field of client-go's queue: since 0.37 it has no method to read the
// queued deltas.
func private[F any](f *cache.DeltaFIFO, name string) *F {
	field := reflect.ValueOf(f).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[F]() {
		panic(fmt.Sprintf("cache.DeltaFIFO has no field %s of type %s any more", name, reflect.TypeFor[F]()))
	}
	return (*F)(unsafe.Pointer(field.UnsafeAddr()))
}

func queuedKeys(f *cache.DeltaFIFO) []string { return *private[[]string](f, "queue") }
func queuedDeltas(f *cache.DeltaFIFO) map[string]cache.Deltas {
	return *private[map[string]cache.Deltas](f, "items")
}
func populated(f *cache.DeltaFIFO) bool          { return *private[bool](f, "populated") }
func queueLock(f *cache.DeltaFIFO) *sync.RWMutex { return private[sync.RWMutex](f, "lock") }

// convert returns client-go's deltas of one key in Watershed's form, except for versions,
// which client-go does not have.
func convert(key string, theirs cache.Deltas) delta.Deltas[*pod] {
	ds := make(delta.Deltas[*pod], 0, len(theirs))
	for _, d := range theirs {
		ds = append(ds, convertOne(key, d))
	}
	return ds
}

func convertOne(key string, d cache.Delta) delta.Delta[*pod] {
	c := delta.Delta[*pod]{Key: key}
	for t := delta.Added; t <= delta.Sync; t++ {
		if t.String() == string(d.Type) {
			c.Type = t
		}
	}
	switch obj := d.Object.(type) {
	case cache.DeletedFinalStateUnknown:
		c.Missed, c.Key = true, obj.Key
		c.Object, _ = obj.Obj.(*pod)
	case *pod:
		c.Object = obj
	}
	return c
}

func writeDelta(b *strings.Builder, d delta.Delta[*pod]) {
	b.WriteString(d.Type.String())
	b.WriteByte(' ')
	b.WriteString(d.Key)
	b.WriteString(": ")
	b.WriteString(d.Object.String())
	if d.Missed {
		b.WriteString(" (missed)")
	}
	b.WriteString("; ")
}

// show returns deltas as text, without their versions.
func show(ds delta.Deltas[*pod]) string {
	var b strings.Builder
	for _, d := range ds {
		if d.Type != delta.Bookmark { // client-go's queue has none
			writeDelta(&b, d)
		}
	}
	return b.String()
}

// process is client-go's processDeltas, which is not exported, except for the types that
// DeltaFIFO does not produce.
func process(handler cache.ResourceEventHandler, state cache.Store, deltas cache.Deltas, initial bool) error {
	for _, d := range deltas {
		obj := d.Object
		switch d.Type {
		case cache.Sync, cache.Replaced, cache.Added, cache.Updated:
			if old, exists, err := state.Get(obj); err == nil && exists {
				if err := state.Update(obj); err != nil {
					return err
				}
				handler.OnUpdate(old, obj)
			} else {
				if err := state.Add(obj); err != nil {
					return err
				}
				handler.OnAdd(obj, initial)
			}
		case cache.Deleted:
			if err := state.Delete(obj); err != nil {
				return err
			}
			handler.OnDelete(obj)
		default:
			return fmt.Errorf("delta of type %s from a DeltaFIFO", d.Type)
		}
	}
	return nil
}
