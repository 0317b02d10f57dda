// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package build describes how this program was built.
package build

import (
	"runtime/debug"
	"strings"
)

// Version returns a description of the build.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

// describe returns the version of the module, or the commit if it was not built from a
// published version, followed by the Go version and platform: "v1.2.0 go1.26.1
// linux/amd64".
func describe(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := info.Main.Version
	if text == "" || text == "(devel)" {
		text = "devel"
		if revision := settings["vcs.revision"]; revision != "" {
			text += "-" + revision[:min(12, len(revision))]
		}
		if settings["vcs.modified"] == "true" {
			text += "+dirty"
		}
	}
	text += " " + info.GoVersion
	if settings["GOOS"] != "" {
		text += " " + settings["GOOS"] + "/" + settings["GOARCH"]
	}
	return strings.TrimSpace(text)
}
