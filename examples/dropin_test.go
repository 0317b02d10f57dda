// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nowhere is a pod that no node takes.
const nowhere = `{"spec":{"nodeSelector":{"no":"where"}}}`

// testDropin runs client-go's programs with client-go's and with Watershed's informers
// through the same changes, and compares their lines.
func testDropin(t *testing.T, example func(string, ...string) *program, kubectl func(...string) string) {
	// ready is a text that a program prints when it has synced. handlers are the
	// beginnings of the lines of each handler.
	programs := map[string]struct {
		ready    string
		handlers []string
	}{
		"informer": {"store: ", []string{""}},
		"indexer":  {"app=web: ", []string{""}},
		"shared":   {"second Add: ", []string{"first ", "second "}},
		"factory":  {"Pod: ", []string{""}},
	}
	stock, ours := map[string]*program{}, map[string]*program{}
	for name := range programs {
		stock[name] = example("dropin", "-program", name, "-with=client-go")
		ours[name] = example("dropin", "-program", name)
	}
	await := func(text func(name string) string) {
		t.Helper()
		for name := range programs {
			stock[name].awaitText(t, text(name))
			ours[name].awaitText(t, text(name))
		}
	}
	await(func(name string) string { return programs[name].ready })
	kubectl("create", "configmap", "drop", "--from-literal=a=1")
	kubectl("label", "configmap", "drop", "b=2")
	kubectl("delete", "configmap", "drop")
	kubectl("create", "configmap", "end")
	kubectl("run", "drop", "--image=drop", "--overrides="+nowhere)
	kubectl("label", "pod", "drop", "b=2")
	kubectl("delete", "pod", "drop", "--timeout=80s")
	kubectl("run", "end", "--image=drop", "--overrides="+nowhere)
	await(func(name string) string {
		return programs[name].handlers[len(programs[name].handlers)-1] + "Add: end"
	})
	for name, p := range programs {
		for _, handler := range p.handlers {
			want := calls(stock[name], handler)
			if diff := cmp.Diff(want, calls(ours[name], handler)); diff != "" {
				t.Errorf("%s, handler %q (-client-go +compat):\n%s", name, handler, diff)
			}
			// Nothing but the test changes config maps.
			if all := strings.Join(want, ", "); name != "indexer" &&
				!strings.HasSuffix(all, ", Add: drop, Update: drop, Delete: drop, Add: end") {
				t.Errorf("%s, handler %q: client-go was called with %q", name, handler, want)
			}
		}
		if diff := cmp.Diff(lists(stock[name]), lists(ours[name])); diff != "" {
			t.Errorf("%s, what it listed (-client-go +compat):\n%s", name, diff)
		}
		stock[name].interrupt(t)
		ours[name].interrupt(t)
	}
	if want, got := []string{"app=web: [web]"}, lists(ours["indexer"]); !slices.Equal(got, want) {
		t.Errorf("indexer listed %q, want %q", got, want)
	}
	kubectl("delete", "configmap", "end")
	kubectl("delete", "pod", "end", "--timeout=80s")
}

// calls returns the lines of a handler up to the last object, the initial objects sorted:
// client-go has no order for them.
func calls(p *program, handler string) []string {
	var all []string
	for _, line := range p.stdout.lines() {
		if text, ok := strings.CutPrefix(line, handler); ok && called(text) {
			all = append(all, text)
		}
	}
	if end := slices.Index(all, "Add: end"); end >= 0 {
		all = all[:end+1]
	}
	if live := slices.Index(all, "Add: drop"); live >= 0 {
		slices.Sort(all[:live])
	}
	return all
}

// lists returns the lines that are not from a handler.
func lists(p *program) []string {
	return slices.DeleteFunc(p.stdout.lines(), func(line string) bool {
		return called(strings.TrimPrefix(strings.TrimPrefix(line, "first "), "second "))
	})
}

func called(line string) bool {
	return strings.HasPrefix(line, "Add: ") || strings.HasPrefix(line, "Update: ") ||
		strings.HasPrefix(line, "Delete: ")
}
