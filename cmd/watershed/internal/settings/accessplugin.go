// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/watershed-project/watershed/fleet/directory"
)

// accessPluginFile is the provider file of the cluster-inventory-api project, with which
// consumers of ClusterProfiles configure their credential plugins.
type accessPluginFile struct {
	Providers []struct {
		Name       string                  `json:"name"`
		ExecConfig *clientcmdv1.ExecConfig `json:"execConfig"`
		// ArgsPolicy is Ignore, the default, or Append.
		ArgsPolicy string `json:"profileSourcedCLIArgsPolicy"`
		// EnvPolicy is Ignore, the default, or AppendIfNotExists. The policy Replace is
		// not supported: a profile could change how a plugin was set up.
		EnvPolicy string `json:"profileSourcedEnvVarsPolicy"`
	} `json:"providers"`
}

// readAccessPlugins reads a provider file. It returns the plugins by the name of the
// provider.
func readAccessPlugins(path string) (map[string]directory.AccessPlugin, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file accessPluginFile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(file.Providers) == 0 {
		return nil, fmt.Errorf("%s: the list \"providers\" is empty or missing", path)
	}
	plugins := map[string]directory.AccessPlugin{}
	for _, p := range file.Providers {
		plugin := directory.AccessPlugin{}
		var err error
		switch _, twice := plugins[p.Name]; {
		case p.Name == "":
			err = errors.New("no name")
		case twice:
			err = errors.New("two providers have this name")
		case p.ExecConfig == nil || p.ExecConfig.Command == "" || p.ExecConfig.APIVersion == "":
			err = errors.New("execConfig needs a command and an apiVersion")
		default:
			plugin.ProfileArgs, plugin.ProfileEnv, err = policies(p.ArgsPolicy, p.EnvPolicy)
		}
		if err == nil {
			err = clientcmdlatest.Scheme.Convert(p.ExecConfig, &plugin.Exec, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: provider %q: %w", path, p.Name, err)
		}
		plugins[p.Name] = plugin
	}
	return plugins, nil
}

// policies reports whether a profile may add arguments and variables.
func policies(args, env string) (addArgs, addEnv bool, err error) {
	switch args {
	case "", "Ignore":
	case "Append":
		addArgs = true
	default:
		return false, false, fmt.Errorf("profileSourcedCLIArgsPolicy %q is not supported: use Ignore or Append", args)
	}
	switch env {
	case "", "Ignore":
	case "AppendIfNotExists":
		addEnv = true
	default:
		return false, false, fmt.Errorf("profileSourcedEnvVarsPolicy %q is not supported: use Ignore or "+
			"AppendIfNotExists", env)
	}
	return addArgs, addEnv, nil
}
