// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

// Encoding is the format of a response.
type Encoding uint8

const (
	// JSON is the default.
	JSON Encoding = iota
	// YAML is converted from JSON.
	YAML
	// Protobuf is for kinds that have a Go type.
	Protobuf
)

// MediaTypes are the media types of the encodings, in the order in which kube-apiserver
// names them.
var MediaTypes = [...]string{
	JSON: "application/json", YAML: "application/yaml", Protobuf: "application/vnd.kubernetes.protobuf",
}

// MediaType returns the media type of the encoding.
func (e Encoding) MediaType() string { return MediaTypes[e] }
