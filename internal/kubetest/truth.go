// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/etcd"
)

// Truth has all objects of a resource, as they are in etcd at one revision.
type Truth struct {
	Revision int64
	Objects  []Stored // by key
}

// truthPage is how many objects one response of etcd has: some 2.5 MB of pods.
const truthPage = 500

// Stored is one object in etcd.
type Stored struct {
	Key      string // /registry/pods/default/web
	Revision int64  // of its last change: its resourceVersion
	Raw      []byte // as stored

	// Object is Raw decoded, with the resourceVersion set as the API server does: the
	// typed object for built-in resources, an [unstructured.Unstructured] for custom
	// ones, and only the metadata, [metav1.PartialObjectMetadata], if only the API server
	// has the type.
	Object runtime.Object
	// Meta is the metadata of the same object.
	Meta metav1.Object
}

// Truth reads all objects of a resource directly from etcd, bypassing the API server.
func (c *Cluster) Truth(ctx context.Context, resource schema.GroupResource) (*Truth, error) {
	t := &Truth{}
	err := c.withEtcd(func(client *etcd.Client) error {
		return t.read(ctx, client, storagePrefix(resource))
	})
	if err != nil {
		return nil, fmt.Errorf("truth of %s: %w", resource, err)
	}
	return t, nil
}

// read reads all pages below prefix, each at the revision of the first.
func (t *Truth) read(ctx context.Context, client *etcd.Client, prefix string) error {
	next := etcd.Range{First: prefix, End: etcd.PrefixEnd(prefix), Limit: truthPage}
	for {
		next.Revision = t.Revision
		resp, err := client.Read(ctx, next)
		if err != nil {
			return err
		}
		if t.Revision == 0 {
			t.Revision = resp.Revision
		}
		for _, kv := range resp.Values {
			s := Stored{Key: kv.Key, Revision: kv.Revision, Raw: kv.Value}
			if err := s.decode(); err != nil {
				return fmt.Errorf("%s: %w", kv.Key, err)
			}
			t.Objects = append(t.Objects, s)
		}
		if !resp.More {
			return nil
		}
		next.First = t.Objects[len(t.Objects)-1].Key + "\x00"
	}
}

// protobufMagic is the prefix of protobuf that the API server stores.
var protobufMagic = []byte("k8s\x00")

func (s *Stored) decode() error {
	obj, err := decodeStored(s.Raw)
	if err != nil {
		return err
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("%T has no metadata", obj)
	}
	meta.SetResourceVersion(strconv.FormatInt(s.Revision, 10))
	s.Object, s.Meta = obj, meta
	return nil
}

func decodeStored(raw []byte) (runtime.Object, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err == nil || !runtime.IsNotRegisteredError(err) {
		return obj, err
	}
	if !bytes.HasPrefix(raw, protobufMagic) {
		u := &unstructured.Unstructured{}
		return u, u.UnmarshalJSON(raw)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw[len(protobufMagic):]); err != nil {
		return nil, err
	}
	// Every kind has its metadata in the same field.
	p := &metav1.PartialObjectMetadata{}
	if err := p.Unmarshal(envelope.Raw); err != nil {
		return nil, err
	}
	p.APIVersion, p.Kind = envelope.APIVersion, envelope.Kind
	return p, nil
}
