// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/expect"
)

// configPath is the path of the configuration file in the container.
const configPath = "/etc/watershed/config/watershed.yaml"

// restartAnnotation is the annotation of the pods that changes with the settings that need a
// restart.
const restartAnnotation = "watershed.dev/restart"

// configOf returns the configuration file that the container reads: the content of a ConfigMap
// that is mounted without a subPath, so that the file follows the ConfigMap.
func configOf(t *testing.T, objects []*unstructured.Unstructured, d *appsv1.Deployment) string {
	t.Helper()
	pod := d.Spec.Template.Spec
	for _, mount := range pod.Containers[0].VolumeMounts {
		if mount.MountPath != filepath.Dir(configPath) || mount.SubPath != "" {
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name || volume.ConfigMap == nil {
				continue
			}
			for _, o := range objects {
				if o.GetKind() == "ConfigMap" && o.GetName() == volume.ConfigMap.Name {
					text, _, err := unstructured.NestedString(o.Object, "data", filepath.Base(configPath))
					expect.NoError(t, err)
					return text
				}
			}
		}
	}
	t.Fatalf("no ConfigMap is mounted for %s", configPath)
	return ""
}

// settingsOf returns the settings that serve has in the container. They must be valid.
func settingsOf(t *testing.T, objects []*unstructured.Unstructured, d *appsv1.Deployment) *settings.Settings {
	t.Helper()
	args := d.Spec.Template.Spec.Containers[0].Args
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("the arguments are %v", args)
	}
	o, flags := settings.New(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.AddFlags(flags)
	expect.NoError(t, flags.Parse(args[1:]))
	if flags.NArg() > 0 {
		t.Errorf("the arguments %v are not flags", flags.Args())
	}
	expect.Equal(t, o.File, configPath)
	o.File = filepath.Join(t.TempDir(), "watershed.yaml")
	expect.NoError(t, os.WriteFile(o.File, []byte(configOf(t, objects, d)), 0o600))
	expect.NoError(t, o.Load())
	return o
}

// chartKeys are the keys of the configuration file that the chart determines from other values.
var chartKeys = []string{
	"apiVersion", "kind", "listen", "stateDir", "tls", "shutdown", "metricsListen", "sources.inCluster",
	"sources.directories", "group",
}

// TestChart_configSchema checks that the schema of the value config is that of the
// configuration file, without the keys that the chart determines.
func TestChart_configSchema(t *testing.T) {
	needsDeploy(t, "short", "full", "write")
	published, err := settings.New().Keys.Schema()
	expect.NoError(t, err)
	var schema map[string]any
	expect.NoError(t, json.Unmarshal(published, &schema))
	for _, name := range []string{"$id", "$schema", "title"} {
		delete(schema, name)
	}
	for _, key := range chartKeys {
		parent, properties := "", schema["properties"].(map[string]any)
		name := key
		if before, after, ok := strings.Cut(key, "."); ok {
			parent, name = before, after
			properties = properties[parent].(map[string]any)["properties"].(map[string]any)
		}
		if properties[name] == nil {
			t.Fatalf("the configuration file has no key %s", key)
		}
		delete(properties, name)
	}
	schema["description"] = "The configuration file of watershed serve, see docs/operations/configuration.md. Most " +
		"changes take effect without a restart"
	schema["required"] = []string{"mirror"}
	schema["properties"].(map[string]any)["mirror"].(map[string]any)["required"] = []string{"resources"}

	path := filepath.Join(chartDir, "values.schema.json")
	text, err := os.ReadFile(path)
	expect.NoError(t, err)
	var values map[string]any
	expect.NoError(t, json.Unmarshal(text, &values))
	values["properties"].(map[string]any)["config"] = schema
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	expect.NoError(t, encoder.Encode(values))
	checkFile(t, path, want.String())
}

// TestChart_restart checks for each key of the configuration file that a changed value changes
// the file, and changes the pods only if the key needs a restart.
func TestChart_restart(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	set := func(key, value string) (text, restart string) {
		objects := c.render(t, "--set-json", `config.fleet.home="home"`, "--set-json", "config."+key+"="+value)
		d := deploymentOf(t, objects)
		return configOf(t, objects, d), d.Spec.Template.Annotations[restartAnnotation]
	}
	samples := map[string][2]string{
		"string":   {`"a"`, `"b"`},
		"bool":     {"false", "true"},
		"int":      {"1", "2"},
		"int64":    {"1", "2"},
		"duration": {`"1s"`, `"2s"`},
	}
	tested := 0
	for _, k := range settings.New().Keys.Keys() {
		if isChartKey(k.Path) {
			continue
		}
		sample, ok := samples[k.Flag.Value.Type()]
		if !ok {
			sample = [2]string{`["a"]`, `["b"]`}
		}
		text, restart := set(k.Path, sample[0])
		otherText, otherRestart := set(k.Path, sample[1])
		if text == otherText {
			t.Errorf("%s: the configuration file does not change", k.Path)
		}
		if changed := restart != otherRestart; changed == k.Live {
			t.Errorf("%s: the pods restart: %v, the change takes effect without a restart: %v", k.Path, changed, k.Live)
		}
		tested++
	}
	if tested < 30 {
		t.Errorf("only %d keys", tested)
	}
}

// isChartKey reports whether the chart determines a key from other values.
func isChartKey(path string) bool {
	for _, key := range chartKeys {
		if path == key || strings.HasPrefix(path, key+".") {
			return true
		}
	}
	return false
}
