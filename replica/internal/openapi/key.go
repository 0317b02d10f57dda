// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import "k8s.io/apimachinery/pkg/runtime"

// The paths of the documents. Those below indexPath are listed in the index.
const (
	versionPath = "/version"
	v2Path      = "/openapi/v2"
	indexPath   = "/openapi/v3"
)

// key is a document in one encoding.
type key struct{ path, accept string }

// index is the key of the index of the documents of version 3.
var index = key{indexPath, runtime.ContentTypeJSON}
