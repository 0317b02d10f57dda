// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

// The functions of this file are for tests of package fleet, which make mirrors without a server.

// Add adds a mirror that runs already, beside the one of its resource if "next" is true.
func (s *Set) Add(x *Mirror, next bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next {
		s.next[x.Resource.GroupResource()] = x
		return
	}
	s.mirrors[x.Resource.GroupResource()] = x
}

// SetListed records the resources of the cluster.
func (s *Set) SetListed(served []kube.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setListedLocked(served)
}

// EndOne ends the mirror of a resource, like [Set.End].
func (s *Set) EndOne(at schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(at, s.mirrors[at])
}
