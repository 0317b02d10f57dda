// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// TestStoredIdentity_types has the version of the Go types in the identity of JSON alone:
// programs with other types share the state in protobuf.
func TestStoredIdentity_types(t *testing.T) {
	s := &Settings{Informer: watershed.SourceOptions[*wire.Object]{Drop: wire.ManagedFields}}
	q := kube.Query{Resource: corev1.SchemeGroupVersion.WithResource("pods")}
	kind, _ := kube.KindOf(q.Resource)
	for _, inJSON := range []bool{false, true} {
		q.JSON = inJSON
		older, newer := s.storedIdentity(q, kind, "uid", "v0.36.0"), s.storedIdentity(q, kind, "uid", "v0.37.0")
		if again := s.storedIdentity(q, kind, "uid", "v0.36.0"); older != again || (older != newer) != inJSON {
			t.Errorf("JSON %v: %+v, and of newer types %+v", inJSON, older, newer)
		}
	}
}
