// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// durationPattern matches the durations that Go parses, except negative ones.
const durationPattern = `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$`

// Schema returns the JSON schema of the file, in the draft that editors support best.
func (s *Set) Schema() ([]byte, error) {
	root := object("The configuration of watershed serve.")
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["$id"] = "https://config.watershed.dev/v1alpha1/configuration.schema.json"
	root["title"] = "Watershed configuration"
	root["required"] = []string{"apiVersion", "kind"}
	properties := propertiesOf(root)
	properties["apiVersion"] = map[string]any{
		"type": "string", "enum": []string{APIVersion}, "description": "The version of the format.",
	}
	properties["kind"] = map[string]any{
		"type": "string", "enum": []string{Kind}, "description": "The kind of the file.",
	}
	properties["clusters"] = clustersSchema()
	for _, k := range s.keys {
		parts := strings.Split(k.Path, ".")
		at := root
		for i, section := range parts[:len(parts)-1] {
			next, ok := propertiesOf(at)[section].(map[string]any)
			if !ok {
				next = object("Keys below " + strings.Join(parts[:i+1], ".") + ".")
				propertiesOf(at)[section] = next
			}
			at = next
		}
		propertiesOf(at)[parts[len(parts)-1]] = k.schema()
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(root)
	return b.Bytes(), err
}

// object returns the schema of keys and values.
func object(description string) map[string]any {
	return map[string]any{
		"type": "object", "description": description, "additionalProperties": false, "properties": map[string]any{},
	}
}

func propertiesOf(schema map[string]any) map[string]any {
	properties, _ := schema["properties"].(map[string]any) // object has made it
	return properties
}

// clustersSchema returns the schema of the list of clusters.
func clustersSchema() map[string]any {
	one := object("A cluster of the fleet.")
	one["required"] = []string{clusterName}
	propertiesOf(one)[clusterName] = map[string]any{
		"type": "string", "minLength": 1, "description": "The name of the cluster in the fleet.",
	}
	propertiesOf(one)[clusterLabels] = map[string]any{
		"type": "object", "additionalProperties": map[string]any{"type": "string"},
		"description": "Labels of the cluster. They are added to those that its source reports, and have precedence.",
	}
	return map[string]any{
		"type":        "array",
		"items":       one,
		"description": "What is known about clusters besides their sources. An entry does not add a cluster.",
	}
}

// schema returns the schema of one setting.
func (k *Key) schema() map[string]any {
	schema := map[string]any{"description": k.describe(), "default": k.fallback()}
	switch k.kind() {
	case boolean:
		schema["type"] = "boolean"
	case number:
		schema["type"] = "integer"
		if k.least != nil {
			schema["minimum"] = *k.least
		}
	case duration:
		schema["type"], schema["pattern"] = "string", durationPattern
	case list:
		schema["type"], schema["items"] = "array", map[string]any{"type": "string"}
	default:
		schema["type"] = "string"
	}
	return schema
}

// describe returns the meaning, the flag and the variable of the setting.
func (k *Key) describe() string {
	live := "A change needs a restart."
	if k.Live {
		live = "A change takes effect while the program runs."
	}
	return fmt.Sprintf("%s. %s Flag --%s, variable %s.", sentence(k.Usage()), live, k.Flag.Name, k.Variable())
}

// sentence returns a text with a capital letter at its beginning.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// fallback returns the default as a value of the file.
func (k *Key) fallback() any {
	switch k.kind() {
	case boolean:
		return k.Flag.DefValue == "true"
	case number:
		return json.Number(k.Flag.DefValue)
	case list:
		items, err := splitList(strings.Trim(k.Flag.DefValue, "[]"))
		if err != nil {
			return []string{}
		}
		return items
	}
	return k.Flag.DefValue
}
