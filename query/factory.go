// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"iter"
	"net/http"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// factoryResource is a resource of a factory.
type factoryResource struct {
	lease   *watershed.Lease[*wire.Object]
	indexes map[string]*watershed.Index[*wire.Object, string]
}

func newFactoryResource(lease *watershed.Lease[*wire.Object], indexers Indexers) *factoryResource {
	r := &factoryResource{lease: lease, indexes: map[string]*watershed.Index[*wire.Object, string]{}}
	for name, values := range indexers {
		r.indexes[name] = watershed.IndexBy(lease, values)
	}
	return r
}

func (r *factoryResource) close() { r.lease.Close() }

func (r *factoryResource) state(string) (state, error) {
	// A run that ends is followed by another, with a channel of its own. The snapshot is
	// of the run that has synced if the channel is the same before and after.
	synced := r.lease.Synced()
	connection := r.lease.Connection() // before the snapshot, which is then not older
	s := factoryState{r, r.lease.Snapshot(), connection}
	select {
	case <-synced:
		if synced == r.lease.Synced() {
			return s, nil
		}
	default:
	}
	return nil, refuse(http.StatusServiceUnavailable, "the objects have not been read completely yet")
}

// factoryState is a state of a resource of a factory.
type factoryState struct {
	resource *factoryResource
	snapshot watershed.Snapshot[*wire.Object]
	// connection is the connection that the snapshot comes from.
	connection reflector.Status
}

func (s factoryState) get(key string) (*wire.Object, bool) { return s.snapshot.Get(key) }

func (s factoryState) walk(namespace, after string) iter.Seq2[string, *wire.Object] {
	return s.snapshot.Range(prefix(namespace), after)
}

func (s factoryState) find(index, value, namespace, after string) (iter.Seq2[string, *wire.Object], error) {
	x := s.resource.indexes[index]
	if x == nil {
		return nil, unknownIndex(index, s.resource.indexes)
	}
	return x.Range(s.snapshot, value, prefix(namespace), after), nil
}

func (factoryState) missing() []string { return nil }

func (s factoryState) freshness() *freshness.Freshness {
	var f freshness.Freshness
	f.Add("", s.connection)
	return &f
}

// prefix returns how the keys of a namespace begin.
func prefix(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + "/"
}
