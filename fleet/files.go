// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// mostRestored limits the stored changes of one resource that are loaded, in bytes.
const mostRestored = 64 << 20

// storedIn returns the files of a mirror of a server's resource, nil if nothing is stored.
func (s *settings) storedIn(to *server, r kube.Resource, q kube.Query, x *mirror) *watershed.Stored {
	if s.Disk == nil || s.Transform != nil && s.TransformName == "" {
		return nil
	}
	turn := func(ctx context.Context) (func(), error) { return s.loads.enter(ctx, x.wanted) }
	return &watershed.Stored{Turn: turn, Window: min(s.history(), mostRestored), Loaded: x.restored, Open: func(_ context.Context, packer *wire.Packer) (*disk.Mirror, error) {
		kind, ok := kube.KindOf(q.Resource)
		if !ok {
			kind = &wire.Kind{GroupVersionKind: q.Resource.GroupVersion().WithKind(r.Kind)}
		}
		cluster, err := to.known.stored()
		if err != nil {
			return nil, err
		}
		id := watershed.Identity(q, kind)
		id.Cluster, id.Transform = cluster, disk.TransformIdentity(s.Drop, s.TransformName)
		files := s.Disk.Cluster(to.name)
		m, err := files.Mirror(id, disk.MirrorOptions{Kind: kind, Packer: packer})
		if err == nil {
			x.stored(&storedFeed{archive: s.archive, cluster: files, name: to.name, id: id})
		}
		return m, err
	}}
}

// stored returns the identity of the cluster for stored objects. The error is
// [disk.ErrUnidentified] if they are not stored.
func (k *identification) stored() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return disk.ClusterIdentity(k.identity.UID, k.identity.Endpoint)
}
