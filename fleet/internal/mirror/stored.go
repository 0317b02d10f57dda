// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// mostLoaded limits the stored changes of one resource that are loaded, in bytes.
const mostLoaded = 64 << 20

// storedIn returns the files of a mirror of a server's resource, nil if nothing is stored.
func (s *Settings) storedIn(to *upstream.Server, r kube.Resource, x *Mirror) *engine.Stored {
	if !s.Stores() {
		return nil
	}
	turn := func(ctx context.Context) (func(), error) {
		return s.Loads.Enter(ctx, func() bool { return x.Feed.IsWanted() })
	}
	open := func(_ context.Context, packer *objectpack.Packer) (*storage.Mirror, error) {
		q := x.Source.Query()
		kind, builtin := kube.KindOf(q.Resource)
		if !builtin {
			kind = &wire.Kind{GroupVersionKind: q.Resource.GroupVersion().WithKind(r.Kind)}
		}
		cluster, err := to.Known.Stored()
		if err != nil {
			return nil, err
		}
		files := s.Disk.Cluster(to.Name())
		id := s.storedIdentity(q, kind, cluster, apiVersion())
		if inJSON := q; builtin && !q.JSON && !q.MetadataOnly && x.useJSON != nil {
			inJSON.JSON = true
			if twin := s.storedIdentity(inJSON, kind, cluster, apiVersion()); files.Has(twin) {
				if err := x.useJSON(); err != nil {
					return nil, err
				}
				id = twin
			}
		}
		m, err := files.Mirror(id, storage.MirrorOptions{Kind: kind, Packer: packer})
		if err == nil {
			x.Feed.SetFiles(s.DiskReader, files, to.Name(), id)
		}
		return m, err
	}
	return &engine.Stored{
		Turn: turn, Window: min(s.History(), mostLoaded), Open: open,
		Loaded: func(state *storage.State) { x.Feed.Load(state) },
	}
}

// Stores reports whether objects are stored.
func (s *Settings) Stores() bool {
	return s.Disk != nil && (s.Informer.TransformBytes == nil || s.TransformName != "")
}

// storedIdentity returns the identity of the stored objects of a query.
//
// A built-in resource is read as JSON only after an object had fields that the Go types of
// this program do not have. So the identity of its JSON contains the version of these types:
//
//   - If a state with this identity is stored, a process with the same types has met such an
//     object. The state in protobuf is then older, or from a program with other types, and in
//     both cases the fields may be missing from what is made of it. The mirror continues with
//     JSON.
//   - A program with other types does not find that state, and reads protobuf again: it may
//     know the fields. Otherwise the resource would be read as JSON for ever, which takes more
//     memory. If it does not know the fields either, it finds that out as the first one did.
//
// In a program that was built without the list of its modules, the version is unknown. Such
// programs share their JSON, and continue with it until the files are removed.
func (s *Settings) storedIdentity(q kube.Query, kind *wire.Kind, cluster, types string) storage.Identity {
	id := engine.Identity(q, kind)
	id.Cluster, id.Transform = cluster, storage.TransformIdentity(s.Informer.Drop, s.TransformName)
	if q.JSON {
		id.Transform += " for k8s.io/api " + types
	}
	return id
}

// apiVersion returns the version of k8s.io/api, which has the Go types of built-in resources,
// in this program.
var apiVersion = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path != "k8s.io/api" {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		return module.Version + " " + module.Sum
	}
	return "unknown"
})
