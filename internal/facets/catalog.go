// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Catalog has the plans of all kinds of a fleet. All methods are safe for concurrent use. The
// clusters of a fleet share the plan of a kind, and so its interned values, unless they define a
// custom resource differently.
type Catalog struct {
	// defaults means that kinds have the facets that need no configuration.
	defaults bool
	// paths are the configured ones, by resource.
	paths map[schema.GroupResource][]declared

	// mu guards the field below.
	mu sync.Mutex
	// plans are by kind and definition. It costs an entry for each form of a definition since the
	// start, at most maxPlans; a plan that has no place is not shared.
	plans map[planKey]*Plan
}

// maxPlans limits the plans that are shared.
const maxPlans = 4096

// planKey identifies a plan. Columns has the paths of a definition.
type planKey struct {
	kind    schema.GroupVersionKind
	columns string
}

// Words of a list of facets.
const (
	// Defaults are the facets of every kind, of pods, the printer columns and selectableFields.
	Defaults = "default"
	// None are no facets. It must be alone.
	None = "none"
)

// NewCatalog returns the catalog for a list of facets: [Defaults], and RESOURCE:PATH for others,
// such as "certificates.cert-manager.io:.status.notAfter". It returns nil for an empty list and for
// [None]. A path into the content of Secrets is an error.
func NewCatalog(list []string) (*Catalog, error) {
	if len(list) == 0 || len(list) == 1 && list[0] == None {
		return nil, nil
	}
	c := &Catalog{paths: map[schema.GroupResource][]declared{}, plans: map[planKey]*Plan{}}
	for _, item := range list {
		switch item {
		case Defaults:
			c.defaults = true
			continue
		case None:
			return nil, errors.New("facets: none cannot be combined with others")
		}
		name, path, ok := strings.Cut(item, ":")
		if !ok || name == "" || strings.ContainsAny(name, "*/ ") {
			return nil, fmt.Errorf(
				"facet %q: use default, none, or RESOURCE:PATH such as certificates.cert-manager.io:.status.notAfter", item)
		}
		steps, err := parsePath(path)
		if err != nil {
			return nil, fmt.Errorf("facet %q: %w", item, err)
		}
		at := schema.ParseGroupResource(name)
		if at == (schema.GroupResource{Resource: "secrets"}) {
			if err := secret(steps); err != nil {
				return nil, fmt.Errorf("facet %q: %w", item, err)
			}
		}
		if len(c.paths[at]) == maxConfigured {
			return nil, fmt.Errorf("facet %q: %s has more than %d", item, name, maxConfigured)
		}
		c.paths[at] = append(c.paths[at], declared{canonical(steps), shared})
	}
	return c, nil
}

const (
	// maxConfigured limits the configured paths of a resource, and maxColumns those that a
	// definition adds.
	maxConfigured, maxColumns = 32, 32
)

// Plan returns the plan of a kind, nil if it has no facets. Definition is the
// CustomResourceDefinition as JSON, nil for a built-in kind and if it is not known.
func (c *Catalog) Plan(at schema.GroupResource, kind schema.GroupVersionKind, definition []byte) *Plan {
	if c == nil {
		return nil
	}
	var all []declared
	var defined []string
	if c.defaults {
		all = slices.Clone(everyKind)
		if kind.Group == "" && kind.Kind == "Pod" {
			all = append(all, podFacets...)
		}
		for _, path := range columns[kind.Group+"/"+kind.Kind] {
			all = append(all, declared{path, shared})
		}
		defined = definedColumns(definition, kind.Version)
		for _, path := range defined {
			all = append(all, declared{path, shared})
		}
	}
	if all = append(all, c.paths[at]...); len(all) == 0 {
		return nil
	}
	key := planKey{kind, strings.Join(defined, "\n")}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.plans[key]; p != nil {
		return p
	}
	p := newPlan(kind, all)
	if len(c.plans) < maxPlans {
		c.plans[key] = p
	}
	return p
}

// Interned returns the sum of what the plans have interned.
func (c *Catalog) Interned() (sum Interned) {
	if c == nil {
		return sum
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.plans {
		n := p.Interned()
		sum.Values, sum.Tuples, sum.Bytes = sum.Values+n.Values, sum.Tuples+n.Tuples, sum.Bytes+n.Bytes
	}
	return sum
}

// definedColumns returns the paths of the printer columns and of the selectable fields of a
// version, as far as they are paths of facets. For a column of one condition it returns the types
// and the statuses of all. It ignores what cannot be read.
func definedColumns(definition []byte, version string) (paths []string) {
	type field struct{ JSONPath string }
	var d struct {
		Spec struct {
			Versions []struct {
				Name                                       string
				AdditionalPrinterColumns, SelectableFields []field
			}
		}
	}
	if definition == nil || json.Unmarshal(definition, &d) != nil {
		return nil
	}
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		for _, f := range append(v.SelectableFields, v.AdditionalPrinterColumns...) {
			if strings.HasPrefix(f.JSONPath, ".status.conditions[?(") {
				paths = append(paths, "status.conditions[*].type", "status.conditions[*].status")
			} else if steps, err := parsePath(f.JSONPath); err == nil && len(paths) < maxColumns {
				paths = append(paths, canonical(steps))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
