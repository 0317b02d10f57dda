// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package protobuf reads protobuf messages of the Kubernetes API without decoding
// them.
//
// A [Scanner] accepts and refuses the same bytes as the generated code of
// k8s.io/api, so a scanned value is always the decoded one. Malformed bytes make the
// scanner [Scanner.Bad] and never cause a panic. It allocates nothing; the values
// that it returns are parts of the message.
package protobuf
