// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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
		entries = append(entries, fleet.Entry{
			Name:   name,
			Config: &rest.Config{Host: "https://" + name},
			Labels: map[string]string{"name": name},
		})
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

// only returns the one part of a Join.
func only(d fleet.Directory) []directory.Part { return []directory.Part{{Name: "only", Directory: d}} }

// parts returns parts with the names of files and a hub. A part that is nil is left out.
func parts(files, hub fleet.Directory) []directory.Part {
	var all []directory.Part
	if files != nil {
		all = append(all, directory.Part{Name: "files", Directory: files})
	}
	if hub != nil {
		all = append(all, directory.Part{Name: "hub", Directory: hub})
	}
	return all
}

// TestJoin_use replaces the only part: clusters of both directories are never removed in
// between.
func TestJoin_use(t *testing.T) {
	log := &logBuffer{}
	first := &followed{static(t, "a", "b"), make(chan int, 10)}
	s := directory.NewJoin(only(first), &directory.JoinOptions{Logger: log.logger()})
	seen := follow(t, s)
	seen.names("a", "b")
	// The next one has not reported yet, so the clusters stay.
	silent := &directory.Static{}
	s.Use(only(silent))
	seen.quiet("a directory that has reported nothing")
	must(t, silent.Set(fleet.Entry{Name: "b", Config: &rest.Config{Host: "https://b"}}, fleet.Entry{
		Name:   "c",
		Config: &rest.Config{Host: "https://c"},
	}))
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
	s.Use(only(&directory.Static{}))
	s.Use(only(static(t, "d")))
	seen.names("d")
	s.Use(only(hopeless{}))
	expect.Soon(t, "the error is logged", func() bool { return strings.Contains(log.String(), "no way") })
	seen.quiet("a directory that fails")
	s.Use(only(static(t, "e")))
	seen.names("e")
}

func names(entries []fleet.Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// after returns the names of the last report after some time.
func (d *recorder) after(wait time.Duration) string {
	time.Sleep(wait)
	synctest.Wait()
	all := d.history()
	if len(all) == 0 {
		return "nothing"
	}
	return names(all[len(all)-1])
}

// TestJoin_useWhileSilent replaces parts while a hub cannot be read. Its clusters stay until it
// has reported, or is removed.
func TestJoin_useWhileSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		hub := &directory.Static{}
		must(t, hub.Set(entriesIn("hub", "a", "h")...))
		s := directory.NewJoin(parts(static(t, "a", "f"), hub), &directory.JoinOptions{Logger: log.logger()})
		seen := follow(t, s)
		expect.Equal(t, seen.after(time.Second), "a f h")
		// The hub is down when the sources are opened again, and the directory has another file.
		silent := &directory.Static{}
		s.Use(parts(static(t, "a", "g"), silent))
		expect.Equal(t, seen.after(time.Minute), "a g h")
		expect.Equal(t, s.Sources()[1], fleet.SourceState{Name: "static", Clusters: 2})
		if !strings.Contains(log.String(), "has not reported") {
			t.Errorf("logged:\n%s", log.String())
		}
		// What the hub reported last stays current until then.
		must(t, hub.Set(entriesIn("hub", "h", "i")...))
		expect.Equal(t, seen.after(time.Second), "a g h i")
		// Another file of credentials is another directory of the same source.
		again := &directory.Static{}
		s.Use(parts(static(t, "g"), again))
		expect.Equal(t, seen.after(time.Minute), "g h i")
		must(t, again.Set(entriesIn("hub", "i", "j")...))
		expect.Equal(t, seen.after(time.Second), "g i j")
		expect.Equal(t, s.Sources()[1], fleet.SourceState{Name: "static", Clusters: 2, Reported: true})
		// A source that is removed takes its clusters away, whatever the hub does.
		s.Use(parts(nil, &directory.Static{}))
		expect.Equal(t, seen.after(4*time.Second), "g i j")
		expect.Equal(t, seen.after(2*time.Second), "i j")
		s.Use(parts(static(t, "g"), nil))
		expect.Equal(t, seen.after(time.Second), "g")
	})
}

// TestJoin_useMoves moves a cluster from a source that is removed to one that reports later.
func TestJoin_useMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := directory.NewJoin(parts(static(t, "a", "b"), nil), nil)
		seen := follow(t, s)
		expect.Equal(t, seen.after(time.Second), "a b")
		hub := &directory.Static{}
		s.Use(parts(nil, hub))
		expect.Equal(t, seen.after(time.Hour), "a b") // no source has reported
		must(t, hub.Set(entriesIn("hub", "b")...))
		expect.Equal(t, seen.after(time.Second), "b")
		for _, entries := range seen.history() {
			if !strings.Contains(names(entries), "b") {
				t.Errorf("b was removed: %s", names(entries))
			}
		}
		if shadowed := seen.last()["b"].Shadowed; len(shadowed) > 0 {
			t.Errorf("b hides clusters of %v", shadowed)
		}
	})
}

// TestJoin_sources has a source that has not reported: it is said only when the caller has the
// clusters.
func TestJoin_sources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := &directory.Static{}, &directory.Static{}
		s := directory.NewJoin(parts(one, two), nil)
		expect.Equal(t, len(s.Sources()), 0)
		seen := follow(t, s)
		must(t, one.Set(entriesIn("one", "a")...))
		expect.Equal(t, seen.after(time.Second), "nothing")
		expect.Equal(t, s.Sources(), []fleet.SourceState{{Name: "static", Clusters: 1}, {Name: "static"}})
		expect.Equal(t, seen.after(5*time.Second), "a")
		expect.Equal(t, s.Sources(), []fleet.SourceState{
			{Name: "static", Clusters: 1, Reported: true},
			{Name: "static"},
		})
		must(t, two.Set())
		expect.Equal(t, seen.after(time.Second), "a")
		expect.Equal(t, s.Sources()[1].Reported, true)
		s.Use(parts(one, hopeless{}))
		seen.after(time.Second)
		if state := s.Sources()[1]; state.Reported || state.Err == nil {
			t.Errorf("a source that has failed: %+v", state)
		}
	})
}

// TestJoin_error returns the error of the only directory.
func TestJoin_error(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := directory.NewJoin(only(hopeless{}), nil).Follow(ctx, func([]fleet.Entry) { t.Error("notified") })
	if err == nil || !strings.Contains(err.Error(), "no way") {
		t.Errorf("the error is %v", err)
	}
}

// TestJoin_labels adds labels to those of the directory.
func TestJoin_labels(t *testing.T) {
	d := static(t, "a", "b")
	s := directory.NewJoin(only(d), nil)
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
