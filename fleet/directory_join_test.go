// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// dirEntries lead to hosts of a domain.
func dirEntries(domain string, names ...string) []fleet.Entry {
	var all []fleet.Entry
	for _, n := range names {
		all = append(all, fleet.Entry{Name: n, Config: &rest.Config{Host: "https://" + n + "." + domain}})
	}
	return all
}

// dirFails fails for good, when it is told to.
type dirFails struct {
	fleet.Static
	fail chan error
}

func (d *dirFails) Follow(ctx context.Context, tell func([]fleet.Entry)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.Static.Follow(ctx, tell) }()
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
	var log dirLog
	var one, two fleet.Static
	told := dirFollow(t, fleet.Join(&fleet.JoinOptions{Patience: time.Hour, Logger: log.logger()}, &one, &two))
	dirMust(t, two.Set(dirEntries("two", "b", "c", "d")...))
	told.calm("the first has not told anything")
	dirMust(t, one.Set(dirEntries("one", "a", "b", "c")...))
	got := told.names("a", "b", "c", "d")
	for name, host := range map[string]string{"a": "https://a.one", "b": "https://b.one", "c": "https://c.one", "d": "https://d.two"} {
		if got[name].Config.Host != host {
			t.Errorf("%s leads to %s", name, got[name].Config.Host)
		}
	}
	dirMust(t, two.Set(dirEntries("two", "b", "c", "d", "e")...))
	told.names("a", "b", "c", "d", "e")
	if n := strings.Count(log.String(), "left out"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	dirMust(t, one.Set(dirEntries("one", "a", "c")...))
	told.until("the later one takes over", func(m map[string]fleet.Entry) bool { return m["b"].Config.Host == "https://b.two" })
	dirMust(t, one.Set())
	told.names("b", "c", "d", "e")
}

func TestJoin_impatient(t *testing.T) {
	var one, two fleet.Static
	told := dirFollow(t, fleet.Join(&fleet.JoinOptions{Patience: dirCalm / 4}, &one, &two))
	told.calm("nothing is known")
	dirMust(t, two.Set(dirEntries("two", "a", "b")...))
	told.names("a", "b")
	dirMust(t, one.Set(dirEntries("one", "b", "c")...))
	if got := told.names("a", "b", "c"); got["b"].Config.Host != "https://b.one" {
		t.Errorf("the later one counts: %s", got["b"].Config.Host)
	}
}

func TestJoin_failure(t *testing.T) {
	var log dirLog
	one, two := &dirFails{fail: make(chan error)}, &dirFails{fail: make(chan error)}
	dirMust(t, one.Set(dirEntries("one", "a")...))
	told := &dirTold{t: t, changed: make(chan struct{}, 1)}
	done := make(chan error, 1)
	join := fleet.Join(&fleet.JoinOptions{Patience: time.Hour, Logger: log.logger()}, one, two)
	go func() { done <- join.Follow(t.Context(), told.tell) }()
	two.fail <- errors.New("first")
	told.names("a")
	dirMust(t, one.Set(dirEntries("one", "a", "b")...))
	told.names("a", "b")
	one.fail <- errors.New("second")
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "second") || strings.Contains(err.Error(), "first") {
			t.Errorf("all have failed: %v", err)
		}
	case <-time.After(dirPatience):
		t.Fatal("goes on without any part")
	}
	if !strings.Contains(log.String(), "first") || strings.Contains(log.String(), "second") {
		t.Errorf("logged:\n%s", log.String())
	}
	if got := told.last(); len(got) != 2 {
		t.Errorf("told last %v", dirText(got))
	}
}

// TestJoin_nothing is a directory as well.
func TestJoin_nothing(t *testing.T) { dirFollow(t, fleet.Join(nil)).names() }
