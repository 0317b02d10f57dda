// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package protobuf reads protobuf messages of the Kubernetes API without decoding them.
//
// A [Scanner] accepts and rejects the same bytes as the generated code of k8s.io/api, so
// a scanned value always equals the decoded one. If the bytes are malformed, the scanner
// sets [Scanner.Bad]; it never panics. A scanner does not allocate: the values that it
// returns refer to the bytes of the message.
package protobuf
