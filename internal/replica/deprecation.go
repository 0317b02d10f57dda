// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// warn says that a kind is deprecated, as the API server does.
func (q *request) warn() {
	text := q.known.deprecated
	if q.builtin != nil {
		text = deprecation(q.builtin.New(), q.kind)
	}
	if text != "" {
		q.w.Header().Add("Warning", warning(text))
	}
}

// deprecation is what the Go type of a kind says of its future.
func deprecation(value any, kind schema.GroupVersionKind) string {
	since, ok := value.(interface{ APILifecycleDeprecated() (major, minor int) })
	if !ok {
		return ""
	}
	major, minor := since.APILifecycleDeprecated()
	text := fmt.Sprintf("%s %s is deprecated in v%d.%d+", kind.GroupVersion(), kind.Kind, major, minor)
	if until, ok := value.(interface{ APILifecycleRemoved() (major, minor int) }); ok {
		major, minor := until.APILifecycleRemoved()
		text += fmt.Sprintf(", unavailable in v%d.%d+", major, minor)
	}
	if other, ok := value.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		use := other.APILifecycleReplacement()
		text += fmt.Sprintf("; use %s %s", use.GroupVersion(), use.Kind)
	}
	return text
}
