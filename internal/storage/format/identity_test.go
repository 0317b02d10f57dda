// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import "testing"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// identify returns the identity of a resource.
func identify(resource string) Identity {
	return Identity{
		Cluster:   "uid-1",
		Version:   "v1",
		Resource:  resource,
		Kind:      "ConfigMap",
		Encoding:  "JSON",
		Transform: "drop:managedFields",
	}
}
