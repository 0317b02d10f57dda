// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

// ListsSubresource reports whether the last discovery of the cluster has a subresource of
// a resource, such as pods/log.
func (m *Member) ListsSubresource(r schema.GroupVersionResource, name string) bool {
	return slices.ContainsFunc(m.discoveredResources(), func(listed kube.Resource) bool {
		return listed.GroupVersionResource == r && slices.ContainsFunc(listed.Subresources, func(s kube.Subresource) bool { return s.Name == name })
	})
}
