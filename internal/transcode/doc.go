// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package transcode writes protobuf messages of the Kubernetes API as JSON without
// decoding them.
//
// A plan, derived once from the Go type of a message, maps each field to its JSON member.
// A message is walked twice: once to find its fields, once to write them in the order of
// the Go type. That allocates nothing.
//
// # Guarantees
//
// [AppendJSON] appends byte for byte what encoding/json writes for the decoded message.
// Only what API servers write is transcoded. Every other message, and so every malformed
// one, is left to the generated code and to encoding/json.
//
// # Bounds and ownership
//
// A plan is kept for each Go type for the life of the process. The plans of all kinds
// of k8s.io/api take about 3 MB together. Nothing refers to a message after a call.
package transcode
