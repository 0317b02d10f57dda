// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// yamlItem converts JSON to an item of a YAML list. The result begins with the newline
// that ends the previous line.
func yamlItem(raw []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return nil, err
	}
	lines := bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))
	return append([]byte("\n- "), lines...), nil
}

// prettyItem returns JSON as an indented item of a list that is a member of an object.
// The result begins with a comma or, for the first item, with the bracket that opens the
// list.
func prettyItem(raw []byte, first bool) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(",\n    ")
	if first {
		out.Bytes()[0] = '['
	}
	err := json.Indent(&out, raw, "    ", "  ")
	return out.Bytes(), err
}
