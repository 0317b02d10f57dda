// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package build

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	settings := func(pairs ...string) (all []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.0 go1.26 linux/amd64": {Main: debug.Module{Version: "v1.2.0"}, GoVersion: "go1.26",
			Settings: settings("GOOS", "linux", "GOARCH", "amd64", "vcs.revision", "0123456789abcdef")},
		"devel-0123456789ab go1.26": {Main: debug.Module{Version: "(devel)"}, GoVersion: "go1.26",
			Settings: settings("vcs.revision", "0123456789abcdef", "vcs.modified", "false")},
		"devel-0123456789ab+dirty go1.26": {GoVersion: "go1.26",
			Settings: settings("vcs.revision", "0123456789abcdef", "vcs.modified", "true")},
		"devel go1.26": {Main: debug.Module{Version: "(devel)"}, GoVersion: "go1.26"},
	} {
		if got := describe(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
