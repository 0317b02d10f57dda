// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/command/serve"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/expect"
)

// keyCase is how a test observes that a key has an effect.
type keyCase struct {
	// with are the other settings.
	with map[string]any
	// from and to are two values of the key, nil for the default, and also are settings that
	// change together with it.
	from, to any
	also     map[string]any
	// observe returns what depends on the key, and want is what that is with each value.
	observe func(c *configured) string
	want    [2]string
	// run replaces all of this. It starts the server itself.
	run func(t *testing.T)
}

// TestKeys_haveAnEffect changes each key and observes a response, a request, a file or a log
// line that depends on it. A key that takes effect while the server runs is changed then.
func TestKeys_haveAnEffect(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	w := newKeyClusters(t)
	cases := map[string]keyCase{}
	for _, some := range []map[string]keyCase{
		w.serving(), w.sources(), w.hubs(), w.mirror(), w.limits(), w.fleet(), w.oidc(), w.audit(), w.storage(),
		w.tracing(), w.groups(),
	} {
		maps.Copy(cases, some)
	}
	for _, k := range settings.New().Keys.Keys() {
		c, ok := cases[k.Path]
		if !ok {
			t.Errorf("key %s has no case: add one that observes its effect", k.Path)
			continue
		}
		delete(cases, k.Path)
		t.Run(k.Path, func(t *testing.T) {
			if c.run != nil {
				c.run(t)
				return
			}
			c.compare(t, k.Path, k.Live)
		})
	}
	for path := range cases {
		t.Errorf("there is no key %s", path)
	}
}

// compare observes both values of the key, in one server if the change takes effect in it.
func (k *keyCase) compare(t *testing.T, path string, live bool) {
	t.Helper()
	values := maps.Clone(k.with)
	if values == nil {
		values = map[string]any{}
	}
	second := map[string]any{path: k.to}
	maps.Copy(second, k.also)
	if k.from != nil {
		values[path] = k.from
	}
	c := configure(t, values)
	k.expect(t, c, 0)
	if live {
		c.change(second)
		k.expect(t, c, 1)
		if strings.Contains(c.log.String(), "restart to apply") {
			t.Errorf("the log has\n%s", c.log)
		}
		return
	}
	expect.NoError(t, c.stopped())
	maps.Copy(values, second)
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	k.expect(t, configure(t, values), 1)
}

// expect waits until the effect of one of the values is observed.
func (k *keyCase) expect(t *testing.T, c *configured, i int) {
	t.Helper()
	expect.Eventually(t, 20*time.Second, func() error {
		if got := k.observe(c); got != k.want[i] {
			return fmt.Errorf("observed %q, want %q; log:\n%s", got, k.want[i], c.log)
		}
		return nil
	})
}

// TestKeys_thatNeedARestart changes all of them in a running server: one log line names them,
// and the state directory has them.
func TestKeys_thatNeedARestart(t *testing.T) {
	kubeconfig := commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	c := launch(t, map[string]any{"sources.kubeconfig": kubeconfig})
	expect.Soon(t, "the server is announced", func() bool { return c.url("") != "" })
	changed := map[string]any{}
	var want []string
	for _, k := range c.options().Keys.Keys() {
		if k.Live || k.Path == "storage.keyVariable" || k.Path == "storage.kms" { // which exclude storage.keyFile
			continue
		}
		want = append(want, k.Path)
		switch k.Value().(type) {
		case bool:
			changed[k.Path] = true
		case []string:
			changed[k.Path] = []string{"other"}
		case int64:
			changed[k.Path] = 4096
		default:
			changed[k.Path] = "other"
		}
	}
	changed["mirror.namespace"] = "other"
	changed["logFormat"] = "json"
	changed["verifyEvery"] = "1h"
	changed["storage.retention"] = "1h"
	changed["tracing.endpoint"] = "http://127.0.0.1:1"
	changed["mirror.facets"] = []string{"default"}
	changed["group.listen"], changed["group.address"] = "127.0.0.1:1", "127.0.0.1:1"
	c.change(changed)
	line := `msg="some changes of the configuration have no effect yet: restart to apply them"`
	expect.Soon(t, "the line", func() bool { return strings.Contains(c.log.String(), line) })
	if log := c.log.String(); strings.Count(log, "restart to apply") != 1 ||
		!strings.Contains(log, `keys="`+strings.Join(want, ", ")+`"`) {
		t.Errorf("the log does not name %v once:\n%s", want, log)
	}
	expect.Soon(t, "the state directory has the keys", func() bool {
		v, err := c.state.Server()
		return err == nil && slices.Equal(v.Configuration.Restart, want)
	})
	if code, body := c.get("/readyz?verbose", c.owner()); code == 0 {
		t.Errorf("the server does not answer any more: %s", body)
	}
	// With the old values there is nothing to restart for.
	for path := range changed {
		changed[path] = nil
	}
	changed["stateDir"] = c.state.Path
	changed["listen"] = "127.0.0.1:0"
	c.change(changed)
	expect.Soon(t, "no key needs a restart", func() bool {
		v, err := c.state.Server()
		return err == nil && len(v.Configuration.Restart) == 0
	})
}

// TestKeys_fromFileVariableAndFlag sets each key by its file, its variable and its flag.
func TestKeys_fromFileVariableAndFlag(t *testing.T) {
	for i, k := range settings.New().Keys.Keys() {
		samples := [3]any{"a", "b", "c"}
		switch k.Value().(type) {
		case bool:
			samples = [3]any{true, false, true}
		case int64:
			samples = [3]any{3, 4, 5}
		case []string:
			samples = [3]any{[]string{"a"}, []string{"b"}, []string{"c"}}
		}
		if k.Flag.Value.Type() == "duration" {
			samples = [3]any{"3s", "4s", "5s"}
		}
		text := func(v any) string { return strings.Trim(fmt.Sprint(v), "[]") }
		for n := range 4 {
			o := settings.New()
			own := o.Keys.Keys()[i]
			want, origin := fmt.Sprint(own.Value()), "default"
			var content []byte
			variables := map[string]string{}
			if n > 0 {
				content, want, origin = []byte(fileOf(t, map[string]any{k.Path: samples[0]})), fmt.Sprint(samples[0]),
					"file"
			}
			if n > 1 {
				variables[k.Variable()], want, origin = text(samples[1]), fmt.Sprint(samples[1]),
					"variable "+k.Variable()
			}
			if n > 2 {
				expect.NoError(t, own.Flag.Value.Set(text(samples[2])))
				own.Flag.Changed, want, origin = true, fmt.Sprint(samples[2]), "flag --"+k.Flag.Name
			}
			expect.NoError(t, o.Keys.Load("f.yaml", content, func(name string) string { return variables[name] }))
			if got := fmt.Sprint(own.Value()); got != want || !strings.HasPrefix(own.Origin().String(), origin) {
				t.Errorf("%s: %s from %s, want %s from %s", k.Path, got, own.Origin(), want, origin)
			}
		}
	}
}

// TestKeys_areAllFlags checks that serve has no other flags, and that no variable can be one
// that Kubernetes sets for a Service called watershed.
func TestKeys_areAllFlags(t *testing.T) {
	var flags []string
	for _, k := range settings.New().Keys.Keys() {
		flags = append(flags, k.Flag.Name)
		for _, prefix := range []string{"WATERSHED_SERVICE_", "WATERSHED_PORT"} {
			if strings.HasPrefix(k.Variable(), prefix) {
				t.Errorf("%s can be a variable of Kubernetes", k.Variable())
			}
		}
	}
	var others []string
	for _, name := range flagNames(serve.NewCommand()) {
		if !slices.Contains(flags, name) {
			others = append(others, name)
		}
	}
	if want := []string{"config"}; !slices.Equal(others, want) {
		t.Errorf("the flags that are not keys are %v, want %v: declare them in settings.Settings", others, want)
	}
}
