// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The kinds of this file extend the API. Their Go types are in modules of their own, so
// they are printed unstructured.

func apiServiceColumns() []column {
	return []column{
		nameColumn,
		text("Service", "The reference to the service that hosts this API endpoint."),
		text("Available", "Whether this service is available."),
		ageColumn,
	}
}

func apiServiceCells(o *unstructured.Unstructured, now time.Time) []any {
	service := "Local"
	if ref, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "service"); ok && ref != nil {
		service = nested(o.Object, "spec", "service", "namespace") + "/" + nested(o.Object, "spec", "service", "name")
	}
	available := "Unknown"
	for _, c := range objects(o.Object, "status", "conditions") {
		if c["type"] != "Available" {
			continue
		}
		available, _ = c["status"].(string)
		if reason, _ := c["reason"].(string); reason != "" && available != "True" {
			available += " (" + reason + ")"
		}
		break
	}
	return []any{o.GetName(), service, available, age(o.GetCreationTimestamp(), now)}
}

func definitionColumns() []column {
	return []column{
		nameColumn,
		text("Scope", "Cluster/Namespaced"),
		text("Versions", "Served versions"),
		createdColumn,
		wide(text("Group", "API group")),
		wide(text("Kind", "CustomResource kind")),
		wide(text("ShortNames", "Short names")),
		wide(boolean("Established", "Established status")),
	}
}

func definitionCells(o *unstructured.Unstructured, _ time.Time) []any {
	var versions []string
	for _, v := range objects(o.Object, "spec", "versions") {
		if served, _ := v["served"].(bool); !served {
			continue
		}
		name, _ := v["name"].(string)
		if stored, _ := v["storage"].(bool); stored {
			name += "(storage)"
		}
		versions = append(versions, name)
	}
	slices.Sort(versions)
	established := slices.ContainsFunc(objects(o.Object, "status", "conditions"), func(c map[string]any) bool {
		return c["type"] == "Established" && c["status"] == "True"
	})
	short, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "names", "shortNames")
	return []any{
		o.GetName(), nested(o.Object, "spec", "scope"), strings.Join(versions, ","), created(o.GetCreationTimestamp()),
		nested(o.Object, "spec", "group"), nested(o.Object, "spec", "names", "kind"), strings.Join(short, ","), established,
	}
}

// nested returns a string of an object, empty if it is absent.
func nested(o map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

// objects returns the objects in a list of an object.
func objects(o map[string]any, path ...string) []map[string]any {
	field, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	list, _ := field.([]any)
	var found []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			found = append(found, m)
		}
	}
	return found
}
