// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Table returns the settings as a table in Markdown.
func (s *Set) Table() string {
	var b strings.Builder
	b.WriteString("| key | flag | variable | default | reload | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range s.keys {
		reload := "no"
		if k.Live {
			reload = "yes"
		}
		fallback := ""
		if text, err := json.Marshal(k.fallback()); err == nil && string(text) != `""` && string(text) != "[]" &&
			string(text) != "0" {
			fallback = "`" + strings.Trim(string(text), `"`) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s | %s |\n", k.Path, k.Flag.Name, k.Variable(), fallback,
			reload, strings.ReplaceAll(k.Usage(), "|", `\|`))
	}
	return b.String()
}

// Print writes the settings as a file, each with a comment about the origin of its value.
func (s *Set) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", APIVersion, Kind)
	s.print(&b, "")
	if len(s.Clusters) > 0 {
		fmt.Fprintf(&b, "clusters: # file %s\n", s.clustersAt)
	}
	for _, c := range s.Clusters {
		fmt.Fprintf(&b, "- name: %s\n", quote(c.Name))
		if len(c.Labels) > 0 {
			fmt.Fprintf(&b, "  labels: %s\n", quote(c.Labels))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// print writes the settings below a path, which is "" or ends with a dot.
func (s *Set) print(b *strings.Builder, path string) {
	indent := strings.Repeat("  ", strings.Count(path, "."))
	for _, name := range s.keys.children(path) {
		switch k := s.keys.byPath(path + name); {
		case k != nil:
			fmt.Fprintf(b, "%s%s: %s # %s\n", indent, name, quote(k.Value()), k.origin)
		case path != "" || name != "apiVersion" && name != "kind" && name != "clusters":
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			s.print(b, path+name+".")
		}
	}
}

// quote returns a value in JSON, which is YAML too.
func quote(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return `""` // impossible: values are texts, numbers and lists and maps of texts
	}
	return string(text)
}
