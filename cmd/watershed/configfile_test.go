// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/expect"
)

var update = flag.Bool("update", false,
	"write the schema and the table of keys in docs/operations, and the files in testdata/trouble, again")

const (
	schemaFile = "../../docs/operations/config.schema.json"
	keysFile   = "../../docs/operations/configuration.md"
)

// TestDocuments_areCurrent compares the published schema and the table of keys with the
// declarations.
func TestDocuments_areCurrent(t *testing.T) {
	const how = "run go test ./cmd/watershed -run TestDocuments_areCurrent -update"
	keys := settings.New().Keys
	schema, err := keys.Schema()
	expect.NoError(t, err)
	page, err := os.ReadFile(keysFile)
	expect.NoError(t, err)
	table := regexp.MustCompile(`(?s)(<!-- keys -->\n).*(<!-- end of keys -->\n)`)
	if !table.Match(page) {
		t.Fatalf("%s has no place for the table", keysFile)
	}
	current := table.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(keys.Table(), "$", "$$")+"${2}"))
	for path, want := range map[string][]byte{schemaFile: schema, keysFile: current} {
		if *update {
			expect.NoError(t, os.WriteFile(path, want, 0o644))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is not current: %s", path, how)
		}
	}
	if out, err := command(t.Context(), "config", "schema"); err != nil || out != string(schema) {
		t.Errorf("watershed config schema prints something else: %v", err)
	}
}

// TestSchema_agrees checks that the schema and the program accept the same files. The
// validator of the API server decides for the schema.
func TestSchema_agrees(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	expect.NoError(t, err)
	var schema spec.Schema
	expect.NoError(t, json.Unmarshal(text, &schema))
	validator := validate.NewSchemaValidator(&schema, nil, "", strfmt.Default)
	files := map[string]bool{
		"": true, "listen: a\n": true, "listen: 7\n": false, "listen: [a]\n": false, "listen:\n": false,
		"lisen: a\n": false,
		"mirror: {resources: [pods], dropManagedFields: true}": true, "mirror: {resources: pods}": false,
		"mirror: {resources: [1]}":         false,
		"mirror: {dropManagedFields: yes}": false, "mirror: {dropManagedFields: \"true\"}": false,
		"mirror: pods": false, "mirror: {resource: [a]}": false,
		"limits: {historyMiB: 1}": true, "limits: {historyMiB: 0}": false, "limits: {historyMiB: -1}": false,
		"limits: {historyMiB: \"1\"}": false,
		"limits: {historyMiB: 1.5}":   false, "limits: {clusterObjects: 0}": true,
		"limits: {clusterObjects: -1}":          false,
		"shutdown: {delay: 1m30s, grace: 1.5h}": true, "shutdown: {delay: soon}": false, "shutdown: {delay: 30}": false,
		"shutdown: {delay: -1s}": false, "shutdown: {delay: \"0\"}": true,
		"clusters: [{name: a, labels: {b: c}}, {name: d}]": true, "clusters: [{labels: {b: c}}]": false,
		"clusters: [{name: a, labels: {b: 1}}]": false,
		"clusters: [{name: a, x: y}]":           false, "clusters: {name: a}": false, "clusters: [{name: \"\"}]": false,
		"sources: {clusterProfiles: {enabled: true, consumer: a}}": true, "sources: {clusterProfiles: true}": false,
	}
	for content, want := range files {
		whole := "apiVersion: config.watershed.dev/v1alpha1\nkind: Configuration\n" + content
		if got := settings.New().Use([]byte(whole)) == nil; got != want {
			t.Errorf("%q: the program accepts it: %v", content, got)
		}
		var document any
		expect.NoError(t, yaml.Unmarshal([]byte(whole), &document))
		// YAML 1.1 has yes for true, and our parser has YAML 1.2.
		if content == "mirror: {dropManagedFields: yes}" {
			continue
		}
		if got := validator.Validate(document).IsValid(); got != want {
			t.Errorf("%q: the schema accepts it: %v", content, got)
		}
	}
	for _, header := range []string{
		"kind: Configuration", "apiVersion: config.watershed.dev/v1alpha1", "apiVersion: v1\nkind: Configuration",
	} {
		var document any
		expect.NoError(t, yaml.Unmarshal([]byte(header), &document))
		if settings.New().Use([]byte(header)) == nil || validator.Validate(document).IsValid() {
			t.Errorf("%q is accepted", header)
		}
	}
}

// TestConfigCommand checks files and prints settings.
func TestConfigCommand(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path,
			[]byte("apiVersion: config.watershed.dev/v1alpha1\nkind: Configuration\n"+content), 0o600))
		return path
	}
	good := write("good.yaml", "fleet: {home: eu, users: [ann]}\nlisten: \":7443\"\n")
	bad := write("bad.yaml", "fleet:\n  users: [ann]\nmirror: {resources: [a/b]}\ntls: {certFile: a}\n")
	worse := write("worse.yaml", "fleets: {}\n")
	if out, err := command(t.Context(), "config", "check", good); err != nil || out != good+": ok\n" {
		t.Errorf("%q, %v", out, err)
	}
	cmd, trouble := newCommand(), &output{}
	cmd.SetArgs([]string{"config", "check", bad, good, worse})
	cmd.SetErr(trouble)
	cmd.SetOut(&output{})
	if err := cmd.Execute(); err == nil {
		t.Error("a file with errors is good")
	}
	for _, want := range []string{
		bad + ":4:10: fleet.users: --fleet-users and --fleet-groups have no effect without --home",
		bad + ":5:21: mirror.resources: --resources: pattern \"a/b\"",
		"--tls-cert-file and --tls-key-file: one of them is missing",
		worse + ":3:1: unknown key fleets: did you mean fleet?",
	} {
		if !strings.Contains(trouble.String(), want) {
			t.Errorf("%q is not in\n%s", want, trouble)
		}
	}
	t.Setenv("WATERSHED_CONFIG", good)
	t.Setenv("WATERSHED_HISTORY", "7")
	out, err := command(t.Context(), "config", "print", "--except", "nodes,jobs.batch")
	expect.NoError(t, err)
	for _, want := range []string{
		"listen: \":7443\" # file " + good + ":4:9\n", "  historyMiB: 7 # variable WATERSHED_HISTORY\n",
		"  except: [\"nodes\",\"jobs.batch\"] # flag --except\n",
		"passThrough: false # default\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if _, err := command(t.Context(), "serve", "--config", bad, "--state-dir", dir); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("%s:4:10", bad)) {
		t.Errorf("serve ends with %v", err)
	}
}
