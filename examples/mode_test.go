// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testSelectors compares what listwatch printed with selectors with kubectl's events of
// all pods.
func testSelectors(t *testing.T, byLabel, byField *program, truth []string) {
	// By label, the list is empty, and the watch has all events of one pod.
	var want []string
	for _, event := range truth {
		typ, phase, _ := strings.Cut(event, " ")
		word := map[string]string{"Added": "ADDED", "Updated": "MODIFIED", "Deleted": "DELETED"}[typ]
		want = append(want, word+" : nettool - "+phase)
	}
	labelled := slices.DeleteFunc(byLabel.stdout.lines(), func(line string) bool {
		return strings.HasPrefix(line, "BOOKMARK : version ") // one a minute, if anything has changed
	})
	if diff := cmp.Diff(append([]string{"# list", "# watch"}, want...), labelled); diff != "" {
		t.Errorf("%s (-want +printed):\n%s", byLabel.name, diff)
	}

	// By phase, a pod is added when it begins to match.
	var running []string
	for _, event := range truth {
		if strings.HasSuffix(event, " Running") {
			running = append(running, event)
		}
	}
	running[0] = "Added Running"
	lines := byField.stdout.lines()
	if diff := cmp.Diff(running, podEvents(lines, "listwatch", "nettool")); diff != "" {
		t.Errorf("%s (-want +its events):\n%s", byField.name, diff)
	}
	if diff := cmp.Diff([]string{"# list", "web", "# watch"}, lines[:3]); diff != "" {
		t.Errorf("%s (-want +first lines):\n%s", byField.name, diff)
	}
	if events := podEvents(lines, "listwatch", "held"); events != nil {
		t.Errorf("%s printed events of a pending pod: %q", byField.name, events)
	}
}

// testTweak checks a watch whose request was tweaked, so that the server ended it.
func testTweak(t *testing.T, p *program) {
	lines := p.stdout.lines()
	if !slices.Equal(lines[:min(2, len(lines))], []string{"# list", "# watch"}) ||
		!strings.HasPrefix(lines[len(lines)-1], "# the server ended the watch") {
		t.Errorf("%s printed\n%s", p.name, p.stdout.String())
	}
}

// testLate checks a handler that joined when web, nettool and held existed, and the
// resyncs of another handler.
func testLate(t *testing.T, p *program, truth map[string][]string) {
	lines := p.stdout.lines()
	joined := slices.Index(lines, "# late joins")
	var late []string
	resyncs := 0
	for n, line := range lines {
		switch {
		case strings.HasPrefix(line, "late "):
			if n < joined {
				t.Errorf("%q before the handler joined", line)
			}
			late = append(late, line)
		case strings.HasSuffix(line, "(resync)"):
			if !strings.HasPrefix(line, "first ") {
				t.Errorf("%q: the handler has no resync period", line)
			}
			if line == "first  OnUpdate: web Running to Running (resync)" {
				resyncs++
			}
		}
	}
	if resyncs < 2 {
		t.Errorf("the first handler received web again %d times", resyncs)
	}
	// The existing pods come first, in the order of their keys. The pod of the program
	// clients may be among them.
	end := slices.IndexFunc(late, func(line string) bool { return !strings.HasSuffix(line, " (was there)") })
	initial := slices.DeleteFunc(slices.Clone(late[:max(0, end)]), func(line string) bool {
		return strings.Contains(line, " watershed-example-")
	})
	if diff := cmp.Diff([]string{
		"late   OnAdd: held Pending (was there)",
		"late   OnAdd: nettool Running (was there)",
		"late   OnAdd: web Running (was there)",
	}, initial); diff != "" {
		t.Fatalf("the late handler began with (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(late[end:], func(line string) bool { return strings.HasSuffix(line, " (was there)") }) {
		t.Errorf("the late handler received existing pods after changes:\n%s", strings.Join(late, "\n"))
	}
	for pod, events := range truth {
		got := podEvents(lines, "late", pod)
		if n := len(events) - len(got); n < 1 || len(got) == 0 || !slices.Equal(events[n:], got) {
			t.Errorf("the late handler received %q of %s, and kubectl %q", got, pod, events)
		}
		if diff := cmp.Diff(got, last(podEvents(lines, "first", pod), len(got))); diff != "" {
			t.Errorf("%s (-late +first):\n%s", pod, diff)
		}
	}
}

// last returns the last n elements, or all if there are fewer.
func last(all []string, n int) []string { return all[max(0, len(all)-n):] }
