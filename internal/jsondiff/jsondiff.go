// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package jsondiff compares two JSON values field by field, for people.
//
// # Guarantees
//
// Apply of the differences would make one value from the other: nothing is left out. Items
// of a list are matched by their name, type, uid or key if all of them have one, as
// Kubernetes does when it merges lists; otherwise by their place.
//
// # Bounds and ownership
//
// The differences refer to the compared values. A comparison visits each field once.
package jsondiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Difference is a field that differs. Old or New is nil if the field does not exist there.
type Difference struct {
	// Path leads to the field: spec.containers[app].image.
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// Compare returns the differences between two values, made of map[string]any, []any and
// scalars, in the order of their paths.
func Compare(old, now any) ([]Difference, error) {
	c := comparison{}
	c.value("", old, now)
	if c.err != nil {
		return nil, c.err
	}
	return c.all, nil
}

// Object returns the fields of an object of the Kubernetes API in JSON, without those that
// change with every write: metadata.resourceVersion and metadata.managedFields.
func Object(text []byte) (map[string]any, error) {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	if meta, ok := all["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
	}
	return all, nil
}

type comparison struct {
	all []Difference
	err error
}

// add notes that a field differs. A side exists only if had or has is true.
func (c *comparison) add(path string, old any, had bool, now any, has bool) {
	d := Difference{Path: path}
	var err, failed error
	if had {
		d.Old, err = json.Marshal(old)
	}
	if has {
		d.New, failed = json.Marshal(now)
	}
	c.all, c.err = append(c.all, d), errors.Join(c.err, err, failed)
}

// value compares two values that exist.
func (c *comparison) value(path string, old, now any) {
	if a, ok := old.(map[string]any); ok {
		if b, ok := now.(map[string]any); ok {
			c.object(path, a, b)
			return
		}
	}
	if a, ok := old.([]any); ok {
		if b, ok := now.([]any); ok {
			c.list(path, a, b)
			return
		}
	}
	if !reflect.DeepEqual(old, now) {
		c.add(path, old, true, now, true)
	}
}

func (c *comparison) object(path string, old, now map[string]any) {
	names := maps.Clone(old)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, had := old[name]
		b, has := now[name]
		c.member(member(path, name), a, had, b, has)
	}
}

// member compares the values of a field that one side may not have.
func (c *comparison) member(path string, old any, had bool, now any, has bool) {
	if had && has {
		c.value(path, old, now)
		return
	}
	c.add(path, old, had, now, has)
}

// member returns the path of a field.
func member(path, name string) string {
	switch {
	case strings.ContainsAny(name, ".[]/"):
		return path + "[" + name + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

func (c *comparison) list(path string, old, now []any) {
	for _, key := range []string{"name", "type", "uid", "key", "containerPort", "port"} {
		a, one := byKey(old, key)
		b, other := byKey(now, key)
		if !one || !other || len(old)+len(now) == 0 {
			continue
		}
		order := slices.Clone(a.names)
		for _, name := range b.names {
			if _, ok := a.values[name]; !ok {
				order = append(order, name)
			}
		}
		for _, name := range order {
			x, had := a.values[name]
			y, has := b.values[name]
			c.member(fmt.Sprintf("%s[%s]", path, name), x, had, y, has)
		}
		if common := kept(a.names, b.values); !slices.Equal(common, kept(b.names, a.values)) {
			c.add(path+"[order]", strings.Join(a.names, " "), true, strings.Join(b.names, " "), true)
		}
		return
	}
	for i := range max(len(old), len(now)) {
		var a, b any
		if i < len(old) {
			a = old[i]
		}
		if i < len(now) {
			b = now[i]
		}
		c.member(fmt.Sprintf("%s[%d]", path, i), a, i < len(old), b, i < len(now))
	}
}

// keyed is a list whose items have keys. names are in the order of the list.
type keyed struct {
	names  []string
	values map[string]any
}

// byKey returns a list by the values of a field, if all items have it and they differ.
func byKey(list []any, field string) (keyed, bool) {
	k := keyed{values: map[string]any{}}
	for _, item := range list {
		object, ok := item.(map[string]any)
		if !ok {
			return k, false
		}
		value, ok := object[field]
		name := fmt.Sprint(value)
		if _, twice := k.values[name]; !ok || twice {
			return k, false
		}
		k.names, k.values[name] = append(k.names, name), item
	}
	return k, true
}

// kept returns the names that are also in a map.
func kept(names []string, in map[string]any) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := in[name]; return !ok })
}
