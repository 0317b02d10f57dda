// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/fields"
	printing "github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// knowledge is what must be known of a type besides its objects.
type knowledge struct {
	printer *printing.Printer
	fields  *fields.Set
	// deprecated is what is to be said of a version that is.
	deprecated string
	// scale is where custom objects have the figures of their scale, nil if they have
	// none.
	scale *scalePaths
}

// types knows the types of a cluster. What is known of a custom one is read from its
// definition, once for each state of it.
type types struct {
	mu     sync.Mutex
	custom map[schema.GroupVersionResource]customType
}

type customType struct {
	definition *wire.Object
	knowledge
}

// defined is the part of a definition that counts here.
type defined struct {
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name                     string
			Deprecated               bool
			DeprecationWarning       string
			AdditionalPrinterColumns []struct {
				Name, Type, Format, Description, JSONPath string
				Priority                                  int32
			}
			SelectableFields []struct{ JSONPath string }
			Subresources     struct{ Scale *scalePaths }
		}
	}
}

// of is what is known of a resource of a member.
func (t *types) of(m *fleet.Member, r kube.Resource) knowledge {
	kind := r.GroupVersionKind()
	if p, ok := printing.For(kind); ok {
		return knowledge{printer: p, fields: fields.For(kind)}
	}
	definition := definitionOf(m, r.GroupVersionResource)
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.custom[r.GroupVersionResource]
	if ok && known.definition == definition {
		return known.knowledge
	}
	k := readDefinition(definition, r.Version, r.Namespaced)
	if k.printer == nil {
		k.printer, _ = printing.Custom(nil)
	}
	if k.fields == nil {
		k.fields = fields.For(kind)
	}
	if t.custom == nil {
		t.custom = map[schema.GroupVersionResource]customType{}
	}
	t.custom[r.GroupVersionResource] = customType{definition, k}
	return k
}

// definitionOf is the definition of a resource, nil if there is none or nobody mirrors
// it.
func definitionOf(m *fleet.Member, r schema.GroupVersionResource) *wire.Object {
	feed, ok := m.Feed(definitions)
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

// readDefinition reads what a version of a custom type says of itself. What cannot be
// read is as if it were not said.
func readDefinition(o *wire.Object, version string, namespaced bool) (k knowledge) {
	if o == nil {
		return k
	}
	var d defined
	if json.Unmarshal(o.Bytes(), &d) != nil {
		return k
	}
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		var columns []printing.Column
		for _, c := range v.AdditionalPrinterColumns {
			columns = append(columns, printing.Column{
				Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, JSONPath: c.JSONPath, Priority: c.Priority,
			})
		}
		var paths []string
		for _, f := range v.SelectableFields {
			paths = append(paths, f.JSONPath)
		}
		if v.Deprecated {
			k.deprecated = cmp.Or(v.DeprecationWarning, fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind))
		}
		k.printer, _ = printing.Custom(columns)
		k.fields, _ = fields.Custom(namespaced, paths)
		k.scale = v.Subresources.Scale
	}
	return k
}
