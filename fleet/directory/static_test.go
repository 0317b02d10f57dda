// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

func TestStatic(t *testing.T) {
	var s directory.Static
	seen := follow(t, &s)
	seen.quiet("nothing was set")
	must(t, s.Set())
	seen.names()
	cfg := &rest.Config{Host: "https://b"}
	must(t, s.Set(fleet.Entry{Name: "b", Config: cfg}, fleet.Entry{
		Name: "a", Config: &rest.Config{Host: "https://a"}, Access: "mine",
	}))
	got := seen.names("a", "b")
	if got["a"].Access != "mine" {
		t.Errorf("access %q", got["a"].Access)
	}
	cfg.Host, got["b"].Config.Host = "https://c", "https://d"
	if host := follow(t, &s).names("a", "b")["b"].Config.Host; host != "https://b" {
		t.Errorf("another Follow reports %s", host)
	}
	must(t, s.Set(fleet.Entry{Name: "b", Config: &rest.Config{Host: "https://b"}}, fleet.Entry{
		Name: "a", Config: &rest.Config{Host: "https://a"}, Access: "mine",
	}))
	seen.quiet("the same was set")
	for name, entries := range map[string][]fleet.Entry{
		"no name":   {{Config: cfg}},
		"slash":     {{Name: "a/b", Config: cfg}},
		"twice":     {{Name: "a", Config: cfg}, {Name: "a", Config: cfg}},
		"no config": {{Name: "a"}},
		"both":      {{Name: "a", Config: cfg, Err: errors.New("no")}},
	} {
		if err := s.Set(entries...); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := directory.NewStatic(entries...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	seen.quiet("what was refused")
	must(t, s.Set(fleet.Entry{Name: "a", Err: errors.New("no")}))
	seen.until("an error", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil && len(m) == 1 })

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ended, func([]fleet.Entry) { t.Error("notified after the end") }); err != nil {
		t.Error(err)
	}
}

// TestStatic_plugin has a credential plugin, which [rest.CopyConfig] would share and
// write to.
func TestStatic_plugin(t *testing.T) {
	s, err := directory.NewStatic(fleet.Entry{Name: "a", Config: &rest.Config{
		Host: "https://a", ExecProvider: &clientcmdapi.ExecConfig{
			Command: "plugin",
			Config:  &runtime.Unknown{Raw: []byte(`{}`)},
		},
	}})
	must(t, err)
	one, two := follow(t, s).names("a")["a"], follow(t, s).names("a")["a"]
	if one.Config.ExecProvider == two.Config.ExecProvider ||
		one.Config.ExecProvider.Config == two.Config.ExecProvider.Config {
		t.Error("two calls of Follow share a plugin")
	}
}
