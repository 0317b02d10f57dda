// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"strings"
	"testing"
)

func TestChild_answersCommandsUntilItIsClosed(t *testing.T) {
	c, err := StartChild(t.Context(), "echo", map[string]int{"n": 7})
	if err != nil {
		t.Fatal(err)
	}
	var task map[string]int
	if err := c.Answer(&task); err != nil || task["n"] != 7 {
		t.Fatalf("%v, %v", task, err)
	}
	for _, line := range []string{"one", "two"} {
		var got string
		if err := c.Command(line); err != nil {
			t.Fatal(err)
		}
		if err := c.Answer(&got); err != nil || got != line {
			t.Fatalf("%q, %v", got, err)
		}
	}
	p := Process{Name: "child", PID: c.PID()}
	if _, err := p.Memory(); err != nil {
		t.Error(err)
	}
	c.Close()
	if _, err := p.Memory(); err == nil {
		t.Error("the child still runs")
	}
}

func TestChild_failsForAnUnknownRole(t *testing.T) {
	c, err := StartChild(t.Context(), "unknown", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var answer any
	if err := c.Answer(&answer); err == nil {
		t.Error(answer)
	}
}

func TestRunAsChild_isFalseInOtherProcesses(t *testing.T) {
	var out strings.Builder
	if done, err := RunAsChild(testRoles, &out); done || err != nil || out.Len() > 0 {
		t.Errorf("%v, %v, %q", done, err, out.String())
	}
}
