// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/listwatch"
)

// request is one GET request to the API server.
type request struct {
	path   []string // escaped segments
	query  url.Values
	accept string
	// stream is set if reading the body may take longer than the client's timeout.
	stream bool
	// apart is set if the request must not share a connection with others.
	apart bool
	// resource and name identify the object of the request, for errors.
	resource schema.GroupResource
	name     string
	listwatch.Request
}
