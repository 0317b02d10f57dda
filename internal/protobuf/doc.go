// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package protobuf reads protobuf messages of the Kubernetes API without decoding them.
//
// A [Scanner] accepts and rejects the same bytes as the generated code of k8s.io/api, so
// a scanned value always equals the decoded one. Malformed bytes make the scanner
// [Scanner.Bad] and never cause a panic. A scanner does not allocate; the values that it
// returns are parts of the message.
package protobuf
