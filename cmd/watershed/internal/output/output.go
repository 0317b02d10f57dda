// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package output has the values of the flag -o, and encodes documents in these formats.
package output

import (
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// The values of -o.
const (
	Table = ""
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
)

// Encode returns a value as indented JSON or as YAML.
func Encode(value any, output string) ([]byte, error) {
	if output == YAML {
		return yaml.Marshal(value)
	}
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
