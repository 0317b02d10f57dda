// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// stored returns the files of the informer, nil if there is no directory. Which objects it
// has is known from a sample of its list request.
func (i *informer) stored(s *source, opts *Options) *engine.Stored {
	if opts.Disk == nil {
		return nil
	}
	return &engine.Stored{Open: func(ctx context.Context, packer *objectpack.Packer) (*storage.Mirror, error) {
		if i.transform != nil && opts.TransformName == "" {
			return nil, errors.New("compat.Options.Disk with a transform needs TransformName")
		}
		sample, err := takeSample(ctx, s.lister)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		cluster, err := sample.cluster()
		if err != nil {
			return nil, err
		}
		uid, err := cluster.UID(ctx)
		if err != nil {
			i.complain(ctx, err)
			return nil, err
		}
		known, err := storage.ClusterIdentity(uid, sample.server.String())
		if err != nil {
			return nil, err
		}
		kind, err := i.storedKind(ctx, cluster, sample.resource)
		if err != nil {
			return nil, err
		}
		id := storage.Identity{
			Cluster: known,
			Group:   sample.resource.Group, Version: sample.resource.Version, Resource: sample.resource.Resource,
			Kind:     kind.Kind,
			Encoding: wire.JSON.String(), Form: i.prototype.goType.String(),
			Namespace: sample.namespace, Selector: sample.query,
			Transform: storage.TransformIdentity(opts.Drop, opts.TransformName),
		}
		if sample.protobuf() && i.prototype.reads(wire.Protobuf) {
			id.Encoding = wire.Protobuf.String()
		}
		files := opts.Disk.Storage().Cluster(sample.server.Host + sample.server.Path)
		return files.Mirror(id, storage.MirrorOptions{Kind: kind, Packer: packer})
	}}
}

// storedKind returns the kind of the informer's objects.
func (i *informer) storedKind(
	ctx context.Context, cluster *kube.Cluster, resource schema.GroupVersionResource,
) (*wire.Kind, error) {
	kind := i.prototype.kind
	if _, ok := i.example.(*unstructured.Unstructured); ok {
		// Each object contains its kind, and the example may have none.
		source, err := cluster.Source(kube.Query{Resource: resource})
		if err != nil {
			return nil, err
		}
		return source.Kind(ctx)
	}
	switch {
	case kind == nil:
		return nil, fmt.Errorf("the kind of %v is not known: set it in the example or in compat.Options.Scheme",
			i.prototype)
	case kind.GroupVersion() != resource.GroupVersion():
		return nil, fmt.Errorf("its client lists %v, and its objects are %v", resource, kind.GroupVersionKind)
	}
	return kind, nil
}
