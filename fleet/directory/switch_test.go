// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
)

// static returns a directory of clusters with these names.
func static(t *testing.T, names ...string) *directory.Static {
	t.Helper()
	var entries []fleet.Entry
	for _, name := range names {
		entries = append(entries, fleet.Entry{Name: name, Config: &rest.Config{Host: "https://" + name}, Labels: map[string]string{"name": name}})
	}
	s, err := directory.NewStatic(entries...)
	must(t, err)
	return s
}

// hopeless is a directory that fails.
type hopeless struct{}

func (hopeless) Follow(context.Context, func([]fleet.Entry)) error { return errors.New("no way") }

// followed counts the followers of a directory.
type followed struct {
	fleet.Directory
	now chan int
}

func (f *followed) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	f.now <- 1
	defer func() { f.now <- -1 }()
	return f.Directory.Follow(ctx, notify)
}

// TestSwitch replaces directories: clusters of both are never removed in between.
func TestSwitch(t *testing.T) {
	log := &logBuffer{}
	first := &followed{static(t, "a", "b"), make(chan int, 10)}
	s := directory.NewSwitch(first, &directory.SwitchOptions{Logger: log.logger()})
	seen := follow(t, s)
	seen.names("a", "b")
	// The next one has not reported yet, so the clusters stay.
	silent := &directory.Static{}
	s.Use(silent)
	seen.quiet("a directory that has reported nothing")
	must(t, silent.Set(fleet.Entry{Name: "b", Config: &rest.Config{Host: "https://b"}}, fleet.Entry{Name: "c", Config: &rest.Config{Host: "https://c"}}))
	seen.names("b", "c")
	for _, entries := range seen.history() {
		if !strings.Contains(names(entries), "b") {
			t.Errorf("b was removed: %s", names(entries))
		}
	}
	if began, ended := <-first.now, <-first.now; began != 1 || ended != -1 {
		t.Error("the first directory is still followed")
	}
	// One that is replaced before it reports, and one that fails, are not used.
	s.Use(&directory.Static{})
	s.Use(static(t, "d"))
	seen.names("d")
	s.Use(hopeless{})
	expect.Soon(t, "the error is logged", func() bool { return strings.Contains(log.String(), "no way") })
	seen.quiet("a directory that fails")
	s.Use(static(t, "e"))
	seen.names("e")
}

func names(entries []fleet.Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// TestSwitch_error returns the error of the directory that is in use.
func TestSwitch_error(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := directory.NewSwitch(hopeless{}, nil).Follow(ctx, func([]fleet.Entry) { t.Error("notified") })
	if err == nil || !strings.Contains(err.Error(), "no way") {
		t.Errorf("the error is %v", err)
	}
}

// TestSwitch_labels adds labels to those of the directory.
func TestSwitch_labels(t *testing.T) {
	d := static(t, "a", "b")
	s := directory.NewSwitch(d, nil)
	s.Label(map[string]map[string]string{"a": {"env": "prod"}, "none": {"x": "y"}})
	seen := follow(t, s)
	got := seen.names("a", "b")
	expect.Equal(t, got["a"].Labels, map[string]string{"name": "a", "env": "prod"})
	expect.Equal(t, got["b"].Labels, map[string]string{"name": "b"})
	got["a"].Labels["env"] = "mine" // the caller owns it
	s.Label(map[string]map[string]string{"b": {"name": "other"}})
	got = seen.until("other labels", func(m map[string]fleet.Entry) bool { return m["b"].Labels["name"] == "other" })
	expect.Equal(t, got["a"].Labels, map[string]string{"name": "a"})
	s.Label(map[string]map[string]string{"b": {"name": "other"}})
	seen.quiet("the same labels")
}
