// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testController checks the lines and the annotation of a namespace in which a pod lives.
// The test of the program itself kills the server.
func testController(t *testing.T, example func(string, ...string) *program, kubectl func(...string) string) {
	p := example("controller")
	p.awaitText(t, "# synced: ")
	annotated := func(want string) {
		t.Helper()
		lines := func() []string { return linesAbout(p, "life") }
		p.await(t, "life: "+want, func([]string) bool { return len(lines()) > 0 && lines()[len(lines())-1] == want })
		got := kubectl("get", "namespace", "life", "-o",
			`jsonpath={.metadata.annotations.example\.watershed\.dev/pods}`)
		if got != want {
			t.Errorf("the annotation is %q, want %q", got, want)
		}
	}
	kubectl("create", "namespace", "life")
	annotated("no pods")
	kubectl("wait", "--for=create", "serviceaccount/default", "--namespace=life", "--timeout=60s")
	kubectl("run", "short", "--image=web", "--namespace=life")
	annotated("1 Running")
	kubectl("delete", "pod", "short", "--namespace=life", "--grace-period=1", "--timeout=80s")
	annotated("no pods")
	p.interrupt(t)

	// The queue merges events, so the program may not print that the pod was pending.
	got := slices.DeleteFunc(linesAbout(p, "life"), func(line string) bool { return line == "1 Pending" })
	if diff := cmp.Diff([]string{"no pods", "1 Running", "no pods"}, slices.Compact(got)); diff != "" {
		t.Errorf("lines about the namespace (-want +printed):\n%s", diff)
	}
	lines := p.stdout.lines()
	draining := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "# draining: ") })
	if draining < 0 || lines[len(lines)-1] != "# stopped" {
		t.Errorf("the last line is %q, draining is line %d", lines[len(lines)-1], draining+1)
	}
}

// linesAbout returns the lines of the controller about a namespace, without its name.
func linesAbout(p *program, namespace string) []string {
	var all []string
	for _, line := range p.stdout.lines() {
		if text, ok := strings.CutPrefix(line, namespace+": "); ok {
			all = append(all, text)
		}
	}
	return all
}
