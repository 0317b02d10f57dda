// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toy is a repository with the modules of this one and no other dependencies.
var toy = map[string]string{
	"go.mod":                    "module example.com/toy\n\ngo 1.26.0\n",
	"toy.go":                    "package toy\n",
	"compat/compat.go":          "package compat\n",
	"fleet/directory/folder.go": "package directory\n",
	"replica/server.go":         "package replica\n",
	"cmd/watershed/go.mod":      "module example.com/toy/cmd/watershed\n\ngo 1.26.0\n\nrequire example.com/toy v0.1.0\n",
	"cmd/watershed/main.go": `package main

import (
	"fmt"
	"runtime/debug"

	_ "example.com/toy"
)

func main() {
	info, _ := debug.ReadBuildInfo()
	fmt.Println("watershed", info.Main.Version, "toy")
}
`,
}

// checkout writes the toy with changed files into a git work tree.
func checkout(t *testing.T, changed map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := maps.Clone(toy)
	maps.Copy(files, changed)
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return root
}

func TestRun_installsAndBuilds(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, checkout(t, nil), false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"go install example.com/toy/cmd/watershed@v0.1.0\n", "watershed v0.1.0 toy\n", "requires 0 other modules\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output %q does not contain %q", out.String(), want)
		}
	}
}

func TestRun_refuses(t *testing.T) {
	program := toy["cmd/watershed/go.mod"]
	for name, c := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"a replace directive": {
			map[string]string{"cmd/watershed/go.mod": program + "\nreplace example.com/toy => ../..\n"},
			"has a replace directive",
		},
		"two versions": {
			map[string]string{
				"metrics/go.mod": "module example.com/toy/metrics\n\ngo 1.26.0\n\nrequire example.com/toy v0.2.0\n",
				"metrics/m.go":   "package metrics\n\nimport _ \"example.com/toy\"\n",
			},
			"others require v0.1.0",
		},
		"a module that is not tidy": {
			map[string]string{"cmd/watershed/main.go": "package main\n\nfunc main() {}\n"},
			"module example.com/toy/cmd/watershed is not tidy (make tidy): its go.mod should be\nmodule example.com/toy/cmd/watershed\n\ngo 1.26.0\n",
		},
		"a program of another version": {
			map[string]string{"cmd/watershed/main.go": "package main\n\nimport _ \"example.com/toy\"\n\nfunc main() { println(\"watershed devel\") }\n"},
			"want version v0.1.0",
		},
		"a package that is not in its module": {
			map[string]string{"replica/server.go": "package replica\n\nimport _ \"example.com/toy/cmd/watershed/hooks\"\n"},
			"example.com/toy/cmd/watershed/hooks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), io.Discard, checkout(t, c.changed), false)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRun_writesTidyModules(t *testing.T) {
	root := checkout(t, map[string]string{"cmd/watershed/main.go": "package main\n\nfunc main() {}\n"})
	if err := run(t.Context(), io.Discard, root, true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "cmd/watershed/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "module example.com/toy/cmd/watershed\n\ngo 1.26.0\n"; string(text) != want {
		t.Errorf("go.mod is %q, want %q", text, want)
	}
}
