// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// identifyTimeout limits the requests that find out which cluster a server has.
const identifyTimeout = 30 * time.Second

// Form is how objects are stored in a directory.
type Form struct {
	// Directory is nil if objects are not stored.
	Directory *storage.Directory
	// Drop lists the metadata fields that are not stored.
	Drop wire.Fields
	// Transformed means that there are transforms, and Name is their name.
	Transformed bool
	Name        string
}

// Stored returns the files for a query of a cluster, nil if there is no directory.
func (f Form) Stored(cluster *kube.Cluster, q kube.Query) (*Stored, error) {
	switch {
	case f.Directory == nil:
		return nil, nil
	case q.Tweak != nil:
		return nil, fmt.Errorf("informer of %s: Disk with Tweak: what it selects is not known", q)
	case f.Transformed && f.Name == "":
		return nil, fmt.Errorf("informer of %s: Disk with a transform needs TransformName", q)
	}
	source, err := cluster.Source(q)
	if err != nil {
		return nil, err
	}
	return &Stored{Open: func(ctx context.Context, packer *objectpack.Packer) (*storage.Mirror, error) {
		ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
		defer cancel()
		uid, err := cluster.UID(ctx)
		if err != nil {
			return nil, err
		}
		known, err := storage.ClusterIdentity(uid, cluster.Config().Host)
		if err != nil {
			return nil, err
		}
		kind, err := source.Kind(ctx)
		if err != nil {
			return nil, err
		}
		id := Identity(q, kind)
		id.Cluster, id.Transform = known, storage.TransformIdentity(f.Drop, f.Name)
		return f.Directory.Cluster(cluster.Name()).Mirror(id, storage.MirrorOptions{Kind: kind, Packer: packer})
	}}, nil
}

// Identity returns the identity of the objects that a query selects, without the cluster
// and the transforms.
func Identity(q kube.Query, kind *wire.Kind) storage.Identity {
	id := storage.Identity{
		Group: q.Resource.Group, Version: q.Resource.Version, Resource: q.Resource.Resource, Kind: kind.Kind,
		Namespace: q.Namespace, Encoding: wire.Protobuf.String(),
	}
	if _, builtin := kube.KindOf(q.Resource); !builtin || q.JSON {
		id.Encoding = wire.JSON.String()
	}
	if q.MetadataOnly {
		id.Form = "metadata"
	}
	if q.LabelSelector+q.FieldSelector != "" {
		id.Selector = q.LabelSelector + ";" + q.FieldSelector
	}
	return id
}
