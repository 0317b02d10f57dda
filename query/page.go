// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/wire"
)

// resource is a resource of a factory or of a fleet.
type resource interface {
	// state returns the current state of a cluster, or with "" of all clusters. It fails
	// if there is none yet.
	state(cluster string) (state, error)
	close()
}

// state is one state of a resource. Its keys are those of responses.
type state interface {
	// get returns an object of the only cluster.
	get(key string) (*wire.Object, bool)
	// walk yields the objects of a namespace, or with "" of all, after a key.
	walk(namespace, after string) iter.Seq2[string, *wire.Object]
	// find is walk for the objects that have a value in an index.
	find(index, value, namespace, after string) (iter.Seq2[string, *wire.Object], error)
	// missing returns the clusters that the state should have and has not.
	missing() []string
	// freshness returns how old the state is.
	freshness() *freshness.Freshness
}

// one returns the response with an object.
func one(s state, w *writer, key string, q *request) ([][]byte, error) {
	name := key
	if q.cluster != "" {
		name = q.cluster + "/" + key
	}
	o, ok := s.get(key)
	if !ok {
		return nil, refuse(http.StatusNotFound, "%s %q not found", q.resource, name)
	}
	b, err := w.append(nil, q.resource, name, o)
	if err != nil {
		return nil, err
	}
	return [][]byte{b, []byte("\n")}, nil
}

// page is the part of a response that precedes its objects.
type page struct {
	Keys     []string `json:"keys"`
	Continue string   `json:"continue,omitempty"`
	Missing  []string `json:"missing,omitempty"`
}

// list returns the response with the objects that a request selects.
func list(ctx context.Context, s state, w *writer, q *request, maxBytes int) ([][]byte, error) {
	objects := s.walk(q.namespace, q.after)
	if q.indexed {
		var err error
		if objects, err = s.find(q.index, q.value, q.namespace, q.after); err != nil {
			return nil, err
		}
	}
	p := page{Keys: []string{}, Missing: s.missing()}
	var items []byte
	examined := 0
	for key, o := range objects {
		if examined++; examined%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err() // the client has disconnected
		}
		if q.selector != nil && !q.selector.Matches(o.Labels()) {
			continue
		}
		n := len(p.Keys)
		if n == q.limit || len(items) > maxBytes {
			p.Continue = p.Keys[n-1]
			break
		}
		if !q.keysOnly {
			more, err := w.appendItem(items, q.resource, key, o)
			if err != nil && n == 0 {
				return nil, continueAfter(key, err)
			}
			if err != nil {
				p.Continue = p.Keys[n-1] // the next response is the error
				break
			}
			items = more
		}
		p.Keys = append(p.Keys, key)
	}
	head, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if q.keysOnly {
		return [][]byte{head, []byte("\n")}, nil
	}
	return [][]byte{head[:len(head)-1], []byte(`,"items":[`), items, []byte("]}\n")}, nil
}
