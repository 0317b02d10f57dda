// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
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

	// missing returns the error for an object that no cluster of the view has.
	missing(r schema.GroupResource, name string) error
	// list returns the name of the list in continue tokens.
	list(namespace string) string
	// start returns where a list continues after an object, and after returns the same as
	// a cluster and a key. Prefix is that of the keys of the list.
	start(cluster, key, prefix string) string
	after(start, prefix string) (cluster, key string)
}

// State is the objects of a resource at one version, cluster by cluster.
type State struct {
	// Version is the version of the cluster or of the fleet.
	Version uint64
	// Parts are sorted by the name of the cluster.
	Parts []Part
	// snapshot is the state of the fleet with all its clusters, see [Fleet.Keep].
	snapshot fleet.Snapshot[*wire.Object]
}

// Part is the objects of one cluster.
type Part struct {
	// Cluster is the name of the cluster.
	Cluster string
	objects ranger
}

// ranger has objects by key.
type ranger interface {
	// Range yields the objects whose key begins with a prefix, after a key, in order.
	Range(prefix, after string) iter.Seq2[string, *wire.Object]
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
		fmt.Sprintf("%s %q is in several clusters, read it from one of them: %s", r, name, status.Names(clusters)))
}

// get returns the object with a key, nil if there is none.
func (p *Part) get(key string) *wire.Object {
	if exact, ok := p.objects.(interface {
		Get(key string) (*wire.Object, bool)
	}); ok {
		o, _ := exact.Get(key)
		return o
	}
	for found, o := range p.objects.Range(key, "") {
		if found == key {
			return o
		}
		return nil
	}
	return nil
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

// notFound returns the 404 for an object.
func notFound(r schema.GroupResource, name string) error { return apierrors.NewNotFound(r, name) }

// prefixOf returns the prefix of the keys of a namespace, "" for all namespaces.
func prefixOf(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + "/"
}

// tokenKey returns the key that a continue token begins after.
func tokenKey(start string) string { return strings.TrimSuffix(start, "\x00") }
