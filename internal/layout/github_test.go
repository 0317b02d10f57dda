// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

var (
	updatedDirectory = regexp.MustCompile(`(?m)^      - (/\S*)$`)
	usedAction       = regexp.MustCompile(`uses: *(\S+)`)
	pinnedAction     = regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40}$`)
)

// TestDependabot_updatesEveryModule fails if a directory with a go.mod is not in .github/dependabot.yml, or the other
// way round.
func TestDependabot_updatesEveryModule(t *testing.T) {
	var want, got []string
	for _, file := range paths(t, "go.mod") {
		want = append(want, path.Join("/", path.Dir(file)))
	}
	for _, m := range updatedDirectory.FindAllStringSubmatch(readPage(t, ".github/dependabot.yml"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	expect.Equal(t, got, want)
}

// TestWorkflows_pinActions fails if a workflow uses an action by a tag or a branch, which its owner can move.
func TestWorkflows_pinActions(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	expect.NoError(t, err)
	used := 0
	for _, file := range workflows {
		text, err := os.ReadFile(file)
		expect.NoError(t, err)
		for _, m := range usedAction.FindAllStringSubmatch(string(text), -1) {
			used++
			if !pinnedAction.MatchString(m[1]) {
				t.Errorf("%s uses %s, which is not the hash of a commit", file, m[1])
			}
		}
	}
	if used == 0 {
		t.Fatal("no workflow uses an action: the test looks in the wrong place")
	}
}
