// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet/directory"
)

func writeFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAccessPlugins(t *testing.T) {
	got, err := readAccessPlugins(writeFile(t, `{"providers": [
		{"name": "plain", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin", "args": ["a"], "env": [{"name": "X", "value": "1"}], "provideClusterInfo": true}},
		{"name": "ignoring", "execConfig": {"apiVersion": "v", "command": "c"}, "profileSourcedCLIArgsPolicy": "Ignore", "profileSourcedEnvVarsPolicy": "Ignore"},
		{"name": "adding", "execConfig": {"apiVersion": "v", "command": "c"}, "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		Command, APIVersion string
		Args                []string
		Env                 []clientcmdapi.ExecEnvVar
		Info                bool
		AddArgs, AddEnv     bool
	}
	summarize := func(p directory.AccessPlugin) summary {
		return summary{p.Exec.Command, p.Exec.APIVersion, p.Exec.Args, p.Exec.Env, p.Exec.ProvideClusterInfo,
			p.ProfileArgs, p.ProfileEnv}
	}
	summaries := map[string]summary{}
	for name, p := range got {
		summaries[name] = summarize(p)
	}
	want := map[string]summary{
		"plain": {Command: "plugin", APIVersion: "client.authentication.k8s.io/v1", Args: []string{"a"},
			Env: []clientcmdapi.ExecEnvVar{{Name: "X", Value: "1"}}, Info: true},
		"ignoring": {Command: "c", APIVersion: "v"},
		"adding":   {Command: "c", APIVersion: "v", AddArgs: true, AddEnv: true},
	}
	if diff := cmp.Diff(want, summaries); diff != "" {
		t.Errorf("wanted (-) and read (+):\n%s", diff)
	}
}

func TestAccessPlugins_errors(t *testing.T) {
	exec := `"execConfig": {"apiVersion": "v", "command": "c"}`
	for text, want := range map[string]string{
		``:                                "EOF",
		`{}`:                              `"providers" is empty`,
		`{"providers": []}`:               `"providers" is empty`,
		`{"provider": []}`:                "unknown field",
		`{"providers": [{` + exec + `}]}`: "no name",
		`{"providers": [{"name": "a", ` + exec + `}, {"name": "a", ` + exec +
			`}]}`: `provider "a": two providers`,
		`{"providers": [{"name": "a"}]}`:                                 `provider "a": execConfig needs`,
		`{"providers": [{"name": "a", "execConfig": {"command": "c"}}]}`: "an apiVersion",
		`{"providers": [{"name": "a", ` + exec +
			`, "profileSourcedCLIArgsPolicy": "x"}]}`: `"x" is not supported: use Ignore or Append`,
		`{"providers": [{"name": "a", ` + exec +
			`, "profileSourcedEnvVarsPolicy": "Replace"}]}`: `"Replace" is not supported: use Ignore or AppendIfNotExists`,
	} {
		path := writeFile(t, text)
		if _, err := readAccessPlugins(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the path", text, err, want)
		}
	}
}
