// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package scan finds fields in the bytes of objects without decoding them, in JSON and in
// protobuf: what identifies an object, labels, managed fields, and the fields at a path. It
// knows the layout of Kubernetes metadata, but not wire.Object.
//
// On malformed input every scan stays within the bytes, terminates and reports the fault.
package scan

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Options are the rules for checking JSON. They match apimachinery, which replaces
// invalid UTF-8 and accepts duplicate names. To remember all names of all objects would
// cost more than the rest of the work. Where a duplicate would change an object's
// identity, [Header.ScanJSON] rejects it.
var Options = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
