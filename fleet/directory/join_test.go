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
)

// entriesIn returns entries with hosts in a domain.
func entriesIn(domain string, names ...string) []fleet.Entry {
	var all []fleet.Entry
	for _, n := range names {
		all = append(all, fleet.Entry{Name: n, Config: &rest.Config{Host: "https://" + n + "." + domain}})
	}
	return all
}

// failing is a directory that returns an error when it receives one from fail.
type failing struct {
	directory.Static
	fail chan error
}

func (d *failing) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.Static.Follow(ctx, notify) }()
	select {
	case err := <-d.fail:
		cancel()
		<-done
		return err
	case err := <-done:
		return err
	}
}

func TestJoin(t *testing.T) {
	var log logBuffer
	var one, two directory.Static
	seen := follow(t, directory.NewJoin([]directory.Part{
		{Name: "one", Directory: &one},
		{Name: "two", Directory: &two},
	}, &directory.JoinOptions{Logger: log.logger()}))
	must(t, two.Set(entriesIn("two", "b", "c", "d")...))
	seen.quiet("the first part has not reported")
	must(t, one.Set(entriesIn("one", "a", "b", "c")...))
	got := seen.names("a", "b", "c", "d")
	for name, host := range map[string]string{
		"a": "https://a.one", "b": "https://b.one", "c": "https://c.one", "d": "https://d.two",
	} {
		if got[name].Config.Host != host {
			t.Errorf("%s connects to %s", name, got[name].Config.Host)
		}
	}
	for name, shadowed := range map[string]int{"a": 0, "b": 1, "c": 1, "d": 0} {
		if n := len(got[name].Shadowed); n != shadowed {
			t.Errorf("%s hides %d clusters, want %d", name, n, shadowed)
		}
	}
	must(t, two.Set(entriesIn("two", "b", "c", "d", "e")...))
	seen.names("a", "b", "c", "d", "e")
	if n := strings.Count(log.String(), "left out"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	must(t, one.Set(entriesIn("one", "a", "c")...))
	seen.until("the later one takes over", func(m map[string]fleet.Entry) bool {
		return m["b"].Config.Host == "https://b.two" && len(m["b"].Shadowed) == 0
	})
	must(t, two.Set(entriesIn("two", "b")...))
	seen.until("the name is free", func(m map[string]fleet.Entry) bool { return len(m["c"].Shadowed) == 0 })
	must(t, two.Set(entriesIn("two", "b", "c", "d", "e")...))
	seen.until("the name is taken again", func(m map[string]fleet.Entry) bool {
		return len(m["c"].Shadowed) == 1 && len(m) == 5
	})
	must(t, one.Set())
	seen.names("b", "c", "d", "e")
}

// TestJoin_timeout does not wait for a part that has not reported after 5 seconds.
func TestJoin_timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var one, two directory.Static
		seen := follow(t, directory.NewJoin([]directory.Part{
			{Name: "one", Directory: &one},
			{Name: "two", Directory: &two},
		}, nil))
		must(t, two.Set(entriesIn("two", "a", "b")...))
		time.Sleep(4900 * time.Millisecond)
		if n := seen.count(); n != 0 {
			t.Errorf("%d reports before the timeout", n)
		}
		time.Sleep(200 * time.Millisecond)
		seen.names("a", "b")
		must(t, one.Set(entriesIn("one", "b", "c")...))
		if got := seen.names("a", "b", "c"); got["b"].Config.Host != "https://b.one" {
			t.Errorf("the later part is used: %s", got["b"].Config.Host)
		}
	})
}

// TestJoin_lateStart has no part that reports before the timeout.
func TestJoin_lateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var one, two directory.Static
		seen := follow(t, directory.NewJoin([]directory.Part{
			{Name: "one", Directory: &one},
			{Name: "two", Directory: &two},
		}, nil))
		time.Sleep(time.Minute)
		if n := seen.count(); n != 0 {
			t.Errorf("%d reports of nothing", n)
		}
		must(t, two.Set(entriesIn("two", "a")...))
		seen.names("a")
	})
}

func TestJoin_failure(t *testing.T) {
	var log logBuffer
	one, two := &failing{fail: make(chan error)}, &failing{fail: make(chan error)}
	must(t, one.Set(entriesIn("one", "a")...))
	seen := newRecorder(t)
	done := make(chan error, 1)
	join := directory.NewJoin([]directory.Part{
		{Name: "one", Directory: one},
		{Name: "two", Directory: two},
	}, &directory.JoinOptions{Logger: log.logger()})
	go func() { done <- join.Follow(t.Context(), seen.notify) }()
	two.fail <- errors.New("first")
	seen.names("a")
	must(t, one.Set(entriesIn("one", "a", "b")...))
	seen.names("a", "b")
	one.fail <- errors.New("second")
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "second") || strings.Contains(err.Error(), "first") {
			t.Errorf("all have failed: %v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("goes on without any part")
	}
	if !strings.Contains(log.String(), "first") || strings.Contains(log.String(), "second") {
		t.Errorf("logged:\n%s", log.String())
	}
	if got := seen.last(); len(got) != 2 {
		t.Errorf("the last report is %v", describe(got))
	}
}

// TestJoin_nothing joins no directories.
func TestJoin_nothing(t *testing.T) { follow(t, directory.NewJoin(nil, nil)).names() }
