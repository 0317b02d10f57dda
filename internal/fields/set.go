// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
)

// The labels that all kinds have, or nearly all.
const (
	name      = "metadata.name"
	namespace = "metadata.namespace"
)

// Set defines the field labels of a kind, and their values for an object.
type Set struct {
	// labels maps the labels that a client may use to the labels that they stand for.
	labels map[string]string
	// value returns the value of a label for an object, except for the labels of
	// metadata. It is nil if there are no others.
	value func(obj runtime.Object, label string) string
	// paths has the JSON path of each label that is not a path itself. "" means that the
	// value does not depend on one field alone, so that objects have to be decoded.
	paths map[string]string
	// refuse returns the error message for any other label.
	refuse func(label string) string
}

// set returns a set with the labels of values, and others that need no value.
func set[O runtime.Object](values map[string]func(O) string, others ...string) *Set {
	s := &Set{labels: map[string]string{}, refuse: unsupported}
	for label := range values {
		s.labels[label] = label
	}
	for _, label := range others {
		s.labels[label] = label
	}
	s.value = func(obj runtime.Object, label string) string {
		value, known := values[label]
		o, ok := obj.(O)
		if !known || !ok {
			return ""
		}
		return value(o)
	}
	return s
}

func unsupported(label string) string { return "field label not supported: " + label }

// Parse parses a client's selector, and replaces labels by those that they stand for. An
// error is a status for the client.
func (s *Set) Parse(selector string) (fields.Selector, error) {
	parsed, err := fields.ParseSelector(selector)
	if err == nil {
		parsed, err = parsed.Transform(func(label, value string) (string, string, error) {
			meant, ok := s.labels[label]
			if !ok {
				return "", "", errors.New(s.refuse(label))
			}
			return meant, value, nil
		})
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return parsed, nil
}

// Of returns the values of an object for the labels of a parsed selector. A field is
// looked up when its value is requested. An object without metadata, or of another Go
// type, has no values.
func (s *Set) Of(obj runtime.Object) fields.Fields { return object{set: s, obj: obj} }

// Equality is a requirement of a selector that the field at a path has a value.
type Equality struct {
	// Path is the path of the JSON members, such as "spec.nodeName".
	Path, Value string
	// Wide marks fields with few different values, so that many objects share each.
	Wide bool
}

// Allows reports whether an object whose field at the path has a value can match.
func (e Equality) Allows(value string) bool {
	return e.Value == value || maybeAbsent(e.Value) && maybeAbsent(value)
}

// Exact reports whether Allows alone decides about an object. It does not for "", "0" and
// "false", which an absent field also matches.
func (e Equality) Exact() bool { return !maybeAbsent(e.Value) }

// maybeAbsent reports whether a field with the value may be absent.
func maybeAbsent(value string) bool { return value == "" || value == "0" || value == "false" }

// Equalities returns the requirements of a parsed selector that can be checked without
// decoding, in its order, including those on metadata. An object that the selector
// matches has the value at each path, where an absent field equals "", "0" and "false".
func (s *Set) Equalities(selector fields.Selector) []Equality {
	var all []Equality
	for _, r := range selector.Requirements() {
		path := r.Field
		if other, ok := s.paths[r.Field]; ok {
			path = other
		}
		if path != "" && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) {
			all = append(all, Equality{path, r.Value, slices.Contains(fewValues, r.Field)})
		}
	}
	return all
}

// fewValues are the labels of fields that have few different values. A watch with such a
// label and another one waits for changes of the other.
var fewValues = []string{
	"spec.hostNetwork", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.signerName",
	"spec.type",
	"spec.unschedulable", "status.phase", "status.replicas", "status.successful", "type", "reason",
	"reportingComponent", "spec.driver",
	"involvedObject.kind", "involvedObject.namespace", "involvedObject.apiVersion",
}

// OnlyMetadata reports whether a selector has requirements on name and namespace only,
// so that objects need not be decoded.
func OnlyMetadata(selector fields.Selector) bool {
	return !slices.ContainsFunc(selector.Requirements(), func(r fields.Requirement) bool {
		return r.Field != name && r.Field != namespace
	})
}

// object implements [fields.Fields] for an object.
type object struct {
	set *Set
	obj runtime.Object
}

func (o object) Has(label string) bool {
	return slices.Contains(slices.Collect(maps.Values(o.set.labels)), label)
}

func (o object) Get(label string) string {
	if label == name || label == namespace {
		m, ok := o.obj.(metav1.Object)
		if !ok {
			return ""
		}
		if label == name {
			return m.GetName()
		}
		return m.GetNamespace()
	}
	if o.set.value == nil {
		return ""
	}
	return o.set.value(o.obj, label)
}
