// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/transcode"
)

// group says where the values of a facet are kept.
type group uint8

const (
	// shared values are interned, and so is the tuple of all of an object: those of the pods
	// of one ReplicaSet are the same.
	shared group = iota
	// placed values are interned in a tuple of their own: those of the pods of one node are
	// the same.
	placed
	// own values differ between most objects and are kept in the record.
	own
	groups
)

// Facet is a field of the objects of a kind whose values are kept beside the objects.
type Facet struct {
	// Path is the path of the field, such as "spec.containers[*].image".
	Path string
	// List means that the path has a "[*]": the value is a list.
	List bool

	steps []step
	group group
	// at is the place among the facets of the group.
	at int
}

// Plan has the facets of a kind. It is made once for all objects of the kind, in all clusters,
// and is safe for concurrent use.
type Plan struct {
	kind   schema.GroupVersionKind
	facets []Facet
	// each has the indexes of the facets of a group.
	each [groups][]int
	// json and messages find all facets, early only those of managed fields, and late the
	// others.
	all, early, late tree
	intern           interner
}

// tree finds facets in the bytes of an object.
type tree struct {
	json *node
	// message is made for the Go type of the first object in protobuf. missing has the facets
	// that cannot be read from its messages.
	once    sync.Once
	message *node
	missing []int
}

// node is a member of the objects, and what is to be found in it.
type node struct {
	name string
	// number is the field in protobuf, and form how its value is read.
	number   int32
	form     form
	omit     bool // the JSON leaves out the zero value
	pointer  bool
	each     bool
	leaf     int // the index of a facet, -1 if it is none
	below    []int
	children []*node
}

// form is how a value of protobuf is read.
type form uint8

const (
	inMessage form = iota
	inMap
	text
	boolean
	int32bit
	int64bit
	quantity
	moment
)

// newPlan returns the plan of a kind. Paths that are not valid are left out.
func newPlan(kind schema.GroupVersionKind, declared []declared) *Plan {
	p := &Plan{kind: kind}
	for _, d := range declared {
		steps, err := parsePath(d.path)
		if err != nil {
			continue
		}
		f := Facet{Path: canonical(steps), steps: steps, group: d.group}
		f.List = slices.ContainsFunc(steps, func(s step) bool { return s.each })
		if _, known := p.Facet(f.Path); known {
			continue
		}
		f.at = len(p.each[f.group])
		p.each[f.group] = append(p.each[f.group], len(p.facets))
		p.facets = append(p.facets, f)
	}
	p.all.json = p.root(func(bool) bool { return true })
	p.early.json = p.root(func(managed bool) bool { return managed })
	p.late.json = p.root(func(managed bool) bool { return !managed })
	return p
}

// declared is a facet before it is compiled.
type declared struct {
	path  string
	group group
}

// Facets returns the facets of the kind. They must not be modified.
func (p *Plan) Facets() []Facet { return p.facets }

// Facet returns the facet with a path, and false if the kind has none.
func (p *Plan) Facet(path string) (Facet, bool) {
	i := p.index(path)
	if i < 0 {
		return Facet{}, false
	}
	return p.facets[i], true
}

func (p *Plan) index(path string) int {
	return slices.IndexFunc(p.facets, func(f Facet) bool { return f.Path == path })
}

// isManaged reports whether a path leads into the managed fields, which may be dropped before
// the object is stored.
func isManaged(steps []step) bool {
	return len(steps) > 1 && steps[0].name == "metadata" && steps[1].name == "managedFields"
}

// root returns the tree of the facets that are wanted, for JSON.
func (p *Plan) root(wanted func(managed bool) bool) *node {
	top := &node{leaf: -1}
	for i := range p.facets {
		steps := p.facets[i].steps
		if !wanted(isManaged(steps)) {
			continue
		}
		n := top
		for _, s := range steps {
			at := slices.IndexFunc(n.children, func(c *node) bool { return c.name == s.name && c.each == s.each })
			if at < 0 {
				at = len(n.children)
				n.children = append(n.children, &node{name: s.name, each: s.each, leaf: -1})
			}
			n = n.children[at]
			n.below = append(n.below, i)
		}
		n.leaf = i
	}
	return top
}

// of returns the tree for the protobuf messages of a Go type. The type is that of the first
// object, and of all others: a plan is of one kind.
func (t *tree) of(message func() reflect.Type) (root *node, missing []int) {
	t.once.Do(func() {
		found := map[int]bool{}
		t.message = typed(t.json, message(), inMessage)
		t.message.leaves(found)
		wanted := map[int]bool{}
		t.json.leaves(wanted)
		for i := range wanted {
			if !found[i] {
				t.missing = append(t.missing, i)
			}
		}
	})
	return t.message, t.missing
}

// leaves adds the facets of a tree.
func (n *node) leaves(found map[int]bool) {
	if n.leaf >= 0 {
		found[n.leaf] = true
	}
	for _, c := range n.children {
		c.leaves(found)
	}
}

// typed returns the part of a tree that a type has.
func typed(n *node, t reflect.Type, f form) *node {
	out := *n
	out.form, out.children = f, nil
	for _, c := range n.children {
		if found := member(c, t, f); found != nil {
			out.children = append(out.children, found)
		}
	}
	return &out
}

// member returns the node of a member of a type, nil if the type has none that can be read.
func member(c *node, t reflect.Type, in form) *node {
	if in == inMap {
		found := *c
		found.pointer = true
		return valued(found, t)
	}
	t = pointee(t)
	field, ok := fieldOf(t, c.name)
	if !ok {
		return nil
	}
	_, number := protobuf.Tag(field.StructField)
	if number == 0 {
		return nil
	}
	found := *c
	found.number, found.omit = int32(number), field.omit
	return valued(found, field.Type)
}

// valued returns the node of a value of a type, nil if it cannot be read.
func valued(c node, t reflect.Type) *node {
	if c.each {
		if t.Kind() != reflect.Slice || t.Elem().Kind() == reflect.Uint8 || protobuf.IsMessage(t) {
			return nil
		}
		t = t.Elem()
		c.omit, c.pointer = false, true // an element is never left out
	}
	if t.Kind() == reflect.Pointer {
		c.pointer = true
		t = t.Elem()
	}
	var f form
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		f = quantity
	case t == reflect.TypeFor[metav1.Time]():
		f = moment
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && len(c.children) > 0 && !c.each:
		return typed(&c, t.Elem(), inMap)
	case protobuf.IsMessage(t) && t.Kind() == reflect.Struct && len(c.children) > 0 && !transcode.MarshalsItself(t):
		return typed(&c, t, inMessage)
	case transcode.MarshalsItself(t):
		return nil
	case t.Kind() == reflect.String:
		f = text
	case t.Kind() == reflect.Bool:
		f = boolean
	case t.Kind() == reflect.Int32:
		f = int32bit
	case t.Kind() == reflect.Int64:
		f = int64bit
	default:
		return nil
	}
	if c.leaf < 0 {
		return nil
	}
	c.form, c.children = f, nil
	return &c
}

func pointee(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// jsonField is a field of a struct, and whether JSON leaves out its zero value.
type jsonField struct {
	reflect.StructField
	omit bool
}

// fieldOf returns the field of a struct that has a name in JSON.
func fieldOf(t reflect.Type, name string) (jsonField, bool) {
	if t.Kind() != reflect.Struct {
		return jsonField{}, false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == name {
			return jsonField{f, slices.Contains(tag[1:], "omitempty") || slices.Contains(tag[1:], "omitzero")}, true
		}
	}
	return jsonField{}, false
}
