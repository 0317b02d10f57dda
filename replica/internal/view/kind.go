// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// Definitions is the resource of CustomResourceDefinitions.
var Definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// MirrorsDefinitions reports whether the CustomResourceDefinitions of a member are mirrored.
func MirrorsDefinitions(m *fleet.Member) bool {
	_, ok := m.Feed(Definitions)
	return ok
}

// StoredAs returns the resource that has the objects of another one too.
func StoredAs(r schema.GroupResource) schema.GroupResource {
	if r.Group == "events.k8s.io" && r.Resource == "events" {
		r.Group = ""
	}
	return r
}

// Kind is what the replica knows of the kind of a resource.
type Kind struct {
	// Printer makes the rows of tables.
	Printer *table.Printer
	// Fields can be selected.
	Fields *fields.Set
	// Deprecated is the warning for a version that is deprecated by its definition.
	Deprecated string
	// Scale has the paths of the scale of custom objects, nil if they have none.
	Scale *ScalePaths
}

// ScalePaths are where objects of a custom kind have the figures of their scale, as in a
// CustomResourceDefinition.
type ScalePaths struct {
	SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string
}

// Kinds are the kinds of a cluster. It reads custom kinds from their definitions, once for
// each state of a definition. The zero value is ready to use. All methods are safe for
// concurrent use.
type Kinds struct {
	mu     sync.Mutex
	custom map[schema.GroupVersionResource]customKind
}

type customKind struct {
	definition *wire.Object
	Kind
}

// definition is the part of a CustomResourceDefinition that the replica needs.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name                     string
			Deprecated               bool
			DeprecationWarning       string
			AdditionalPrinterColumns []table.Column
			SelectableFields         []struct{ JSONPath string }
			Subresources             struct{ Scale *ScalePaths }
		}
	}
}

// Of returns the kind of a resource of a member.
func (t *Kinds) Of(m *fleet.Member, r kube.Resource) Kind {
	kind := r.GroupVersionKind()
	if p, ok := table.For(kind); ok {
		return Kind{Printer: p, Fields: fields.For(kind)}
	}
	defined := definitionOf(m, r.GroupVersionResource)
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.custom[r.GroupVersionResource]
	if ok && known.definition == defined {
		return known.Kind
	}
	k := readDefinition(defined, r.Version, r.Namespaced)
	if k.Printer == nil {
		k.Printer, _ = table.Custom(nil)
	}
	if k.Fields == nil {
		k.Fields = fields.For(kind)
	}
	if t.custom == nil {
		t.custom = map[schema.GroupVersionResource]customKind{}
	}
	t.custom[r.GroupVersionResource] = customKind{defined, k}
	return k
}

// definitionOf returns the definition of a resource, nil if there is none or definitions
// are not mirrored.
func definitionOf(m *fleet.Member, r schema.GroupVersionResource) *wire.Object {
	feed, ok := m.Feed(Definitions)
	if !ok {
		return nil
	}
	now, err := feed.Now()
	if err != nil {
		return nil
	}
	o, _ := now.State.Get(r.GroupResource().String())
	return o
}

// readDefinition reads a version of a custom kind. It ignores what cannot be read.
func readDefinition(o *wire.Object, version string, namespaced bool) (k Kind) {
	if o == nil {
		return k
	}
	var d definition
	if json.Unmarshal(o.Bytes(), &d) != nil {
		return k
	}
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		var paths []string
		for _, f := range v.SelectableFields {
			paths = append(paths, f.JSONPath)
		}
		if v.Deprecated {
			k.Deprecated = cmp.Or(v.DeprecationWarning,
				fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind))
		}
		k.Printer, _ = table.Custom(v.AdditionalPrinterColumns)
		k.Fields, _ = fields.Custom(namespaced, paths)
		k.Scale = v.Subresources.Scale
	}
	return k
}
