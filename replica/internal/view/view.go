// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/wire"
)

// freshness is how long a read waits for a version that the copy has not reached, as long
// as kube-apiserver waits.
const freshness = 3 * time.Second

// View is a resource as one request reads it. [Cluster] and [Fleet] implement it.
type View interface {
	// Now returns the newest state without waiting, nil if there is none yet.
	Now() *State
	// NotOlder returns a state that is not older than a version. 0 means any.
	NotOlder(ctx context.Context, version uint64) (*State, error)
	// Exact returns the state at a version.
	Exact(ctx context.Context, version uint64) (*State, error)
	// Keep keeps a state for the next pages of a list.
	Keep(s *State)
	// Watch prepares a watch. An error is one that the client receives as the response.
	Watch(ctx context.Context, from Start, m *Matcher) (Watch, error)
	// Spans reports whether the view has objects of several clusters.
	Spans() bool

	// issue returns the error if a version of the view must not be shown to a client.
	issue(version uint64) error
	// missing returns the error for an object that no cluster of the view has.
	missing(r schema.GroupResource, name string) error
	// list returns the name of the list in continue tokens.
	list(namespace string) string
	// start returns where a list continues after an object, and after returns the same as
	// a cluster and a key. Prefix is that of the keys of the list.
	start(cluster, key, prefix string) string
	after(start, prefix string) (cluster, key string)
}

// Get returns the object with a key, and the name of its cluster.
func Get(v View, s *State, r schema.GroupResource, key, name string) (*wire.Object, string, error) {
	var found *wire.Object
	var clusters []string
	for i := range s.Parts {
		if o := s.Parts[i].get(key); o != nil {
			found, clusters = o, append(clusters, s.Parts[i].Cluster)
		}
	}
	switch len(clusters) {
	case 0:
		return nil, "", v.missing(r, name)
	case 1:
		return found, clusters[0], nil
	}
	return nil, "", status.New(http.StatusConflict, metav1.StatusReasonConflict,
		fmt.Sprintf("%s %q is in several clusters, read it from one of them: %s", r, name, warning.Names(clusters)))
}

// IsJSON reports whether a cluster of the view sends the resource as JSON, judged by one
// object of each.
func IsJSON(v View) bool {
	s := v.Now()
	return s != nil && slices.ContainsFunc(s.Parts, func(p Part) bool {
		for _, o := range p.objects.Range("", "") {
			return o.Encoding() == wire.JSON
		}
		return false
	})
}
