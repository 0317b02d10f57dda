// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// known has the types that have protobuf.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, apidiscoveryv2.AddToScheme,
		metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		utilruntime.Must(add(s))
	}
	s.AddKnownTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{},
		&metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}()

// mediaType returns the media type of a response, without parameters.
func mediaType(h http.Header) string {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return h.Get("Content-Type")
	}
	return media
}

// value returns the content of a response, so that two can be compared: the result of
// encoding/json for anything structured, text for anything else.
func value(a *answer) (any, error) {
	if len(a.body) == 0 {
		return nil, nil
	}
	switch mediaType(a.header) {
	case runtime.ContentTypeJSON:
		return fromJSON(a.body)
	case runtime.ContentTypeYAML:
		b, err := yaml.YAMLToJSON(a.body)
		if err != nil {
			return nil, err
		}
		return fromJSON(b)
	case runtime.ContentTypeProtobuf:
		return fromProtobuf(a.body)
	}
	return string(a.body), nil
}

func fromJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	if d.More() {
		return nil, errors.New("JSON: there is something after its end")
	}
	return v, nil
}

var protobufMagic = []byte("k8s\x00")

func fromProtobuf(b []byte) (any, error) {
	raw, ok := bytes.CutPrefix(b, protobufMagic)
	if !ok {
		return nil, errors.New("protobuf: not in its envelope")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("protobuf: %w", err)
	}
	if envelope.ContentType == runtime.ContentTypeJSON {
		return fromJSON(envelope.Raw)
	}
	kind := schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)
	obj, err := known.New(kind)
	if err != nil {
		return nil, fmt.Errorf("protobuf: %w", err)
	}
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, fmt.Errorf("protobuf: %T is not told in it", obj)
	}
	if err := m.Unmarshal(envelope.Raw); err != nil {
		return nil, fmt.Errorf("protobuf of %s: %w", kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return fromJSON(text)
}

// at returns the value at a path, nil if there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// text returns the string at a path, "" if there is none.
func text(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

// isList reports whether a value is a list of objects, or the rows of one.
func isList(v any) bool {
	m, _ := v.(map[string]any)
	_, items := m["items"] // the items may be null
	kind := text(v, "kind")
	return kind == "Table" || strings.HasSuffix(kind, "List") && items
}

// continueToken returns the token of the next page.
func continueToken(a *answer) (string, error) {
	v, err := value(a)
	if err != nil {
		return "", err
	}
	return text(v, "metadata", "continue"), nil
}
