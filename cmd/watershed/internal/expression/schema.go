// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Document is an OpenAPI v3 document of a group version, as an API server has it below /openapi/v3. It
// takes about as many bytes as the document is long. It can be used by several goroutines.
type Document struct {
	components map[string]*node

	mu      sync.Mutex // guards schemas
	schemas map[schema.GroupVersionKind]*Schema
}

// Schema describes the objects of one kind. It keeps its document.
type Schema struct {
	document *Document
	root     *node
	name     string

	// environment is made when the schema is first used.
	environment func() (*cel.Env, error)
}

// node is the part of an OpenAPI schema that expressions are checked against.
type node struct {
	Ref        string           `json:"$ref,omitempty"`
	Type       string           `json:"type,omitempty"`
	Format     string           `json:"format,omitempty"`
	AllOf      []*node          `json:"allOf,omitempty"`
	Properties map[string]*node `json:"properties,omitempty"`
	Items      *node            `json:"items,omitempty"`
	Additional json.RawMessage  `json:"additionalProperties,omitempty"`

	IntOrString bool       `json:"x-kubernetes-int-or-string,omitempty"`
	Preserve    bool       `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	Embedded    bool       `json:"x-kubernetes-embedded-resource,omitempty"`
	Kinds       []kindName `json:"x-kubernetes-group-version-kind,omitempty"`

	// additional is the schema of the values of a map.
	additional *node
}

type kindName struct{ Group, Version, Kind string }

// ParseDocument reads an OpenAPI v3 document. The caller bounds its length.
func ParseDocument(text []byte) (*Document, error) {
	var d struct {
		Components struct {
			Schemas map[string]*node `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	for name, n := range d.Components.Schemas {
		if err := n.finish(); err != nil {
			return nil, fmt.Errorf("OpenAPI document: schema %s: %w", name, err)
		}
	}
	return &Document{components: d.Components.Schemas, schemas: map[schema.GroupVersionKind]*Schema{}}, nil
}

// finish reads additionalProperties, which is a schema or a boolean.
func (n *node) finish() error {
	if n == nil {
		return nil
	}
	switch text := strings.TrimSpace(string(n.Additional)); {
	case text == "true":
		n.additional = &node{}
	case strings.HasPrefix(text, "{"):
		n.additional = &node{}
		if err := json.Unmarshal(n.Additional, n.additional); err != nil {
			return err
		}
	}
	n.Additional = nil
	for _, sub := range n.AllOf {
		if err := sub.finish(); err != nil {
			return err
		}
	}
	for _, sub := range n.Properties {
		if err := sub.finish(); err != nil {
			return err
		}
	}
	if err := n.Items.finish(); err != nil {
		return err
	}
	return n.additional.finish()
}

// Schema returns the schema of a kind, nil if the document does not have it. It is the same one each
// time.
func (d *Document) Schema(kind schema.GroupVersionKind) *Schema {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.schemas[kind]
	if ok {
		return s
	}
	for name, n := range d.components {
		if n != nil && slices.Contains(n.Kinds, kindName(kind)) && n.Properties["metadata"] != nil {
			s = &Schema{document: d, root: n, name: name}
			s.environment = sync.OnceValues(func() (*cel.Env, error) { return checking(s.typeOf(n, name), s) })
			d.schemas[kind] = s
			return s
		}
	}
	return nil
}

// reference returns the name of the component that a schema refers to. Fields with a description refer
// to it in an allOf.
func (n *node) reference() string {
	ref := n.Ref
	if ref == "" && len(n.AllOf) == 1 {
		ref = n.AllOf[0].Ref
	}
	name, _ := strings.CutPrefix(ref, "#/components/schemas/")
	return name
}

// separator is between the name of a component and the fields below it in the name of a type. No
// component has it in its name.
const separator = "/"

// typeOf returns the type of a value, as it is in the object's JSON: times and quantities are strings,
// and a number is of either number type, because a JSON object can have 1 where it could have 1.5.
// name is the name of the type if the value is an object with fields.
func (s *Schema) typeOf(n *node, name string) *cel.Type {
	if n == nil {
		return cel.DynType
	}
	if ref := n.reference(); ref != "" {
		component := s.document.components[ref]
		if component == nil || component.reference() != "" {
			return cel.DynType
		}
		return s.typeOf(component, ref)
	}
	if n.IntOrString || n.Format == "int-or-string" {
		return cel.DynType
	}
	switch n.Type {
	case "string":
		return cel.StringType
	case "boolean":
		return cel.BoolType
	case "integer":
		return cel.IntType
	case "array":
		return cel.ListType(s.typeOf(n.Items, name+separator+"items"))
	case "object":
		switch {
		case len(n.Properties) > 0:
			return cel.ObjectType(name)
		case n.additional != nil:
			return cel.MapType(cel.StringType, s.typeOf(n.additional, name+separator+"values"))
		}
	}
	return cel.DynType
}

// lookup returns the schema of an object with fields by the name of its type, nil if there is none.
func (s *Schema) lookup(name string) *node {
	parts := strings.Split(name, separator)
	n := s.document.components[parts[0]]
	for _, part := range parts[1:] {
		if n == nil {
			return nil
		}
		switch part {
		case "items":
			n = n.Items
		case "values":
			n = n.additional
		default:
			n = n.Properties[part[1:]]
		}
	}
	return n
}

// field returns the type of a field, nil if the object cannot have it.
func (s *Schema) field(object, name string) *cel.Type {
	n := s.lookup(object)
	if n == nil {
		return nil
	}
	if property, ok := n.Properties[name]; ok {
		return s.typeOf(property, object+separator+"."+name)
	}
	if n.Preserve || n.additional != nil ||
		n.Embedded && (name == "apiVersion" || name == "kind" || name == "metadata") {
		return cel.DynType
	}
	return nil
}

// names returns the names of the fields of the object at a path.
func (s *Schema) names(p Path) []string {
	n := s.target(s.root)
	for _, name := range p {
		if n == nil {
			return nil
		}
		switch property := n.Properties[name]; {
		case name == Every:
			n = s.target(n.Items)
		case property != nil:
			n = s.target(property)
		default:
			n = s.target(n.additional)
		}
	}
	if n == nil {
		return nil
	}
	return sorted(n.Properties)
}

// target returns the schema that a schema refers to, or the schema itself.
func (s *Schema) target(n *node) *node {
	if n != nil && n.reference() != "" {
		return s.document.components[n.reference()]
	}
	return n
}

// provider gives the types of a schema and of the variable cluster to the checker of cel-go.
type provider struct {
	types.Provider
	schema *Schema
}

// clusterFields are the fields of the variable cluster.
var clusterFields = map[string]*cel.Type{
	"name":    cel.StringType,
	"labels":  cel.MapType(cel.StringType, cel.StringType),
	"version": cel.StringType,
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if name == clusterType || p.schema != nil && p.schema.lookup(name) != nil {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(object, field string) (*types.FieldType, bool) {
	var t *cel.Type
	switch {
	case object == clusterType:
		t = clusterFields[field]
	case p.schema != nil && p.schema.lookup(object) != nil:
		t = p.schema.field(object, field)
	default:
		return p.Provider.FindStructFieldType(object, field)
	}
	if t == nil {
		return nil, false
	}
	return &types.FieldType{Type: t}, true
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
