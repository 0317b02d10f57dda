// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Create creates the objects of a manifest, YAML or JSON with any number of documents,
// one after the other, and returns them as the server created them. Kinds are resolved by
// the cluster's discovery, so they may be custom ones. An object of a namespaced kind
// without a namespace is created in "default". At the first error Create stops and
// returns the objects created so far.
func (c *Cluster) Create(ctx context.Context, manifest []byte) ([]*wire.Object, error) {
	documents, err := parseManifest(manifest)
	if err != nil {
		return nil, fmt.Errorf("create in %s: %w", c.name, err)
	}
	var made []*wire.Object
	for _, d := range documents {
		r, resource, err := c.manifestRequest(ctx, "create", &d)
		if err != nil {
			return made, err
		}
		r.method, r.body = http.MethodPost, d.raw
		kind, _ := KindOf(resource)
		obj, err := c.object(ctx, r, kind)
		if err != nil {
			return made, c.moved(resource, err)
		}
		made = append(made, obj)
	}
	return made, nil
}

// Delete deletes the objects of a manifest, the last one first, and leaves their
// dependents to the garbage collector. It does not wait until they are gone. If one
// cannot be deleted, it continues with the others and returns all errors.
func (c *Cluster) Delete(ctx context.Context, manifest []byte) error {
	documents, err := parseManifest(manifest)
	if err != nil {
		return fmt.Errorf("delete in %s: %w", c.name, err)
	}
	var errs []error
	for i := len(documents) - 1; i >= 0; i-- {
		errs = append(errs, c.delete(ctx, &documents[i]))
	}
	return errors.Join(errs...)
}

func (c *Cluster) delete(ctx context.Context, d *document) error {
	r, resource, err := c.manifestRequest(ctx, "delete", d)
	if err != nil {
		return err
	}
	if err := validateSegment("name", d.Metadata.Name); err != nil {
		return fmt.Errorf("%s: %w", r.Doing, err)
	}
	r.method = http.MethodDelete
	r.path = append(r.path, url.PathEscape(d.Metadata.Name))
	r.query = url.Values{"propagationPolicy": {string(metav1.DeletePropagationBackground)}}
	err = c.document(ctx, r, func([]byte, http.Header) error { return nil })
	return c.moved(resource, err)
}

// moved drops the last discovery if the error is that the resource is not served, so that
// the next attempt runs discovery again.
func (c *Cluster) moved(resource schema.GroupVersionResource, err error) error {
	if isReason(err, reflector.NotServed) {
		c.catalogue.forget(resource)
	}
	return err
}

// manifestRequest returns the request for a document, without its method, and the
// document's resource.
func (c *Cluster) manifestRequest(
	ctx context.Context, verb string, d *document,
) (*request, schema.GroupVersionResource, error) {
	doing := fmt.Sprintf("%s %s in %s", verb, d, c.name)
	// A writer may have waited until the kind is served, so an old discovery is not good
	// enough.
	resource, err := c.resolveKind(ctx, schema.FromAPIVersionAndKind(d.APIVersion, d.Kind), 0)
	if err != nil {
		return nil, schema.GroupVersionResource{}, fmt.Errorf("%s: %w", doing, err)
	}
	namespace := ""
	if resource.Namespaced {
		if namespace = d.Metadata.Namespace; namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		if err := validateSegment("namespace", namespace); err != nil {
			return nil, schema.GroupVersionResource{}, fmt.Errorf("%s: %w", doing, err)
		}
	}
	return &request{
		path:   resourcePath(resource.GroupVersionResource, namespace),
		accept: runtime.ContentTypeJSON,

		resource: resource.GroupResource(),
		name:     d.Metadata.Name,
		Request:  listwatch.Request{Doing: doing, Collection: true},
	}, resource.GroupVersionResource, nil
}

// document is one object of a manifest.
type document struct {
	metav1.TypeMeta
	Metadata struct {
		Name         string
		GenerateName string
		Namespace    string
	}
	Items []json.RawMessage // of a List

	raw []byte // JSON
}

// String returns kind, namespace and name.
func (d *document) String() string {
	name := d.Metadata.Name
	if name == "" {
		name = d.Metadata.GenerateName + "*"
	}
	if d.Metadata.Namespace != "" {
		name = d.Metadata.Namespace + "/" + name
	}
	return d.Kind + " " + name
}

func parseManifest(manifest []byte) ([]document, error) {
	var all []document
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for n := 1; ; n++ {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			all, err = appendDocument(all, raw.Raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// appendDocument adds one document, or its items if it is a List.
func appendDocument(all []document, raw []byte) ([]document, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return all, nil // nothing but comments
	}
	d := document{raw: raw}
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	if d.APIVersion == "v1" && d.Kind == "List" {
		for _, item := range d.Items {
			var err error
			if all, err = appendDocument(all, item); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	if d.APIVersion == "" || d.Kind == "" {
		return nil, fmt.Errorf("%s has no apiVersion or no kind", &d)
	}
	return append(all, d), nil
}
