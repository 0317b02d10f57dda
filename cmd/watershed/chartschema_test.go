// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// kubeconformVariable is the name of the environment variable with the path of kubeconform.
const kubeconformVariable = "WATERSHED_KUBECONFORM"

// kubeconform validates manifests without a cluster, as a user's pipeline would. Its schemas are
// those of the API server of the test.
type kubeconform struct{ program, schemas string }

// newKubeconform returns nil if kubeconform is not built. It writes the schemas.
func newKubeconform(ctx context.Context, t *testing.T, k *kubetest.Cluster) *kubeconform {
	t.Helper()
	program := os.Getenv(kubeconformVariable)
	if program == "" {
		t.Logf("%s is not set: the manifests are validated by the API server only", kubeconformVariable)
		return nil
	}
	text, err := k.Kubectl(ctx, "get", "--raw", "/openapi/v2")
	expect.NoError(t, err)
	v := &kubeconform{program: program, schemas: t.TempDir()}
	expect.NoError(t, v.writeSchemas([]byte(text)))
	return v
}

// validate returns the output of kubeconform if it refuses a text.
func (v *kubeconform) validate(ctx context.Context, text string) error {
	cmd := exec.CommandContext(ctx, v.program, "-strict", "-summary", "-skip",
		"Certificate,ServiceMonitor,PrometheusRule",
		"-schema-location", filepath.Join(v.schemas, "{{.ResourceKind}}{{.KindSuffix}}.json"), "-")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return &validationError{string(out), err}
	}
	return nil
}

// validationError has the output of kubeconform.
type validationError struct {
	output string
	err    error
}

func (e *validationError) Error() string { return e.err.Error() + ": " + e.output }
func (e *validationError) Unwrap() error { return e.err }

// writeSchemas converts an OpenAPI document to one file for each kind, in the layout of
// kubeconform, and one with all definitions.
func (v *kubeconform) writeSchemas(document []byte) error {
	var api struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(document, &api); err != nil {
		return err
	}
	for _, definition := range api.Definitions {
		convertSchema(definition)
	}
	if err := v.write("_definitions.json", map[string]any{"definitions": api.Definitions}); err != nil {
		return err
	}
	for name, definition := range api.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			kind, _ := k.(map[string]any)
			file := kindFile(kind)
			if err := v.write(file, map[string]any{"$ref": "_definitions.json#/definitions/" + name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindFile returns the name of the file of a kind: deployment-apps-v1.json.
func kindFile(kind map[string]any) string {
	text := func(key string) string { s, _ := kind[key].(string); return s }
	parts := []string{strings.ToLower(text("kind"))}
	if group, _, _ := strings.Cut(text("group"), "."); group != "" {
		parts = append(parts, strings.ToLower(group))
	}
	return strings.Join(append(parts, strings.ToLower(text("version"))), "-") + ".json"
}

func (v *kubeconform) write(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(v.schemas, name), text, 0o600)
}

// convertSchema turns a definition of OpenAPI 2 into JSON schema, without unknown fields.
func convertSchema(s map[string]any) {
	if ref, ok := s["$ref"].(string); ok {
		s["$ref"] = "_definitions.json" + ref
	}
	if s["format"] == "int-or-string" {
		delete(s, "format")
		s["type"] = []string{"string", "integer"}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		if s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
		for p := range maps.Values(properties) {
			if inner, ok := p.(map[string]any); ok {
				convertSchema(inner)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			convertSchema(inner)
		}
	}
}
