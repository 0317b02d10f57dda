// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

func FuzzJSONObject(f *testing.F) {
	f.Add(wiretest.PodBytes(f, wire.JSON, 1))
	f.Add(
		[]byte(
			`{ "metadata":{"n\u0061me":"x","namespace":null,"labels":{"a":"b\"}"},"ownerReferences":[{"controller":true}]}}`,
		),
	)
	f.Add([]byte(`{"metadata":{"name":"x"},"metadata":{"name":"y"}}`))
	f.Add(
		[]byte(`{"kind":null,"apiVersion":"v1","metadata":{"name":"\ud800","creationTimestamp":null,"generation":4}}`),
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := wire.NewObject(bytes.Clone(raw), wire.JSON, wiretest.PodKind)
		var want metav1.PartialObjectMetadata
		decodes := utiljson.Unmarshal(raw, &want) == nil
		if err != nil {
			// Strict JSON with a valid name that apimachinery can read must not be
			// rejected.
			if decodes && jsontext.Value(raw).IsValid() && want.Name != "" && !hasSlash(&want) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		wiretest.UseObject(o)
		var typed metav1.TypeMeta
		if !jsontext.Value(o.Bytes()).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Errorf("the bytes are no JSON: %q", o.Bytes())
		} else if utiljson.Unmarshal(o.Bytes(), &typed) == nil && decodes && want.Kind == "" && want.APIVersion == "" &&
			!bytes.Contains(raw, []byte("kind")) && !bytes.Contains(raw, []byte("apiVersion")) &&
			!bytes.Contains(raw, []byte{'\\'}) {
			wiretest.WantEqual(t, "kind", typed, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"})
		}
		if !decodes {
			return
		}
		wiretest.SameIdentity(t, o, &want)
		if jsontext.Value(raw).IsValid(jsontext.AllowInvalidUTF8(true)) {
			wiretest.CheckMeta(t, o, &want)
			wiretest.CheckPartial(t, o, wiretest.PodKind.GroupVersionKind)
		}
	})
}

func hasSlash(m metav1.Object) bool {
	return bytes.ContainsRune([]byte(m.GetName()+m.GetNamespace()), '/')
}

func FuzzProtobufObject(f *testing.F) {
	f.Add(wiretest.PodBytes(f, wire.Protobuf, 1))
	small, _ := wiretest.SmallPod(1).Marshal()
	f.Add(small)
	other, _ := wiretest.SmallPod(2).Marshal()
	f.Add(append(small, other...)) // one object: the last value counts
	f.Add([]byte("\x0a\x03\x0a\x01x\x13\x08\x01\x14\x19\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := wire.NewObject(bytes.Clone(raw), wire.Protobuf, wiretest.PodKind)
		var want metav1.PartialObjectMetadata
		decodes := want.Unmarshal(raw) == nil
		if err != nil {
			if decodes && want.Name != "" && !hasSlash(&want) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		wiretest.UseObject(o)
		if decodes {
			wiretest.SameIdentity(t, o, &want)
			if wire.WellFormedLabels(o) {
				// The generated code does not check wire types within map entries, nor
				// their ends. We do.
				wiretest.CheckMeta(t, o, &want)
			}
			wiretest.CheckPartial(t, o, wiretest.PodKind.GroupVersionKind)
		}
	})
}
