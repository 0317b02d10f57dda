// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/command/serve"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// watching is a watch that a test has open.
type watching struct {
	lines chan string // closed when the watch has ended
}

// watch opens a watch for the duration of the test.
func (c *configured) watch(path, token string) *watching {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path), http.NoBody)
	expect.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: c.client.Transport}).Do(r)
	expect.NoError(c.t, err)
	expect.Equal(c.t, response.StatusCode, http.StatusOK)
	w := &watching{lines: make(chan string, 10_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(w.lines)
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			w.lines <- scanner.Text()
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		response.Body.Close()
		<-ended
	})
	return w
}

// expect waits for an event with a text.
func (w *watching) expect(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				t.Fatalf("the watch ended before an event with %s", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			t.Fatalf("no event with %s", text)
		}
	}
}

// TestReload_keepsWatches changes resources, limits, sources and users of a running server. The
// watches of clusters and resources that stay go on.
func TestReload_keepsWatches(t *testing.T) {
	w := newKeyClusters(t)
	c := configure(t, w.one("fleet.home", "eu"))
	all := "?watch=1&resourceVersion=0&watershedFleet=keyed-by-cluster"
	cluster, fleet := c.watch("/clusters/eu/api/v1/pods"+all, c.owner()), c.watch("/fleet/api/v1/pods"+all, c.owner())
	touch := func(o *origin, i int) string {
		name := o.cluster.Pod(i).Name
		o.cluster.Touch(i)
		return name
	}
	for i, change := range []map[string]any{
		{"mirror.resources": []string{"pods"}},
		{"mirror.resources": []string{"pods", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"}},
		{"limits.historyMiB": 16, "limits.clusterObjects": 1000, "limits.clusterMemoryMiB": 64},
		{"sources.contexts": []string{"eu", "us"}},
		{"clusters": []any{map[string]any{"name": "eu", "labels": map[string]string{"env": "prod"}}}},
		{"fleet.users": []string{"ann"}, "connections.max": 50, "shutdown.grace": "3s"},
	} {
		before := strings.Count(c.log.String(), "configuration reloaded")
		c.change(change)
		expect.Soon(t, "the change takes effect", func() bool {
			return strings.Count(c.log.String(), "configuration reloaded") > before
		})
		name := touch(w.eu, i)
		cluster.expect(t, name)
		fleet.expect(t, name)
	}
	touch(w.us, 38)
	fleet.expect(t, `"watershed.dev/cluster":"us"`) // it has joined
	expect.Soon(t, "the new resource is mirrored", func() bool {
		return codeOf("/clusters/us/apis/apiextensions.k8s.io/v1/customresourcedefinitions")(c) == "200"
	})
	for _, one := range c.clusters() {
		if want := map[string]string{"eu": "prod"}[one.Name]; one.Labels["env"] != want {
			t.Errorf("%s has the labels %v", one.Name, one.Labels)
		}
	}
	// A resource that is no longer selected ends its watches, and no others.
	namespaces := c.watch("/clusters/eu/api/v1/namespaces?watch=1&resourceVersion=0", c.owner())
	c.change(map[string]any{"mirror.except": []string{"namespaces"}})
	expect.Soon(t, "the watch of namespaces ends", func() bool {
		select {
		case _, ok := <-namespaces.lines:
			return !ok
		default:
			return false
		}
	})
	name := touch(w.eu, 30)
	cluster.expect(t, name)
	fleet.expect(t, name)
	// A cluster that leaves is deleted from the watch of the fleet.
	c.change(map[string]any{"sources.contexts": []string{"eu"}})
	fleet.expect(t, `"DELETED"`)
	cluster.expect(t, touch(w.eu, 31))
}

// TestReload_refusesErrors writes a file with errors: it is logged once, shown in the state
// folder, and changes nothing. The next good file takes effect.
func TestReload_refusesErrors(t *testing.T) {
	w := newKeyClusters(t)
	c := configure(t, w.one())
	good := fileOf(t, c.values)
	expect.NoError(t, os.WriteFile(c.path, []byte(strings.Replace(good, `"pods"`, `"a/b", "pods"`, 1)+"\nextra: 1"),
		0o600))
	expect.Soon(t, "the error is logged", func() bool {
		return strings.Contains(c.log.String(), "configuration not reloaded")
	})
	time.Sleep(10 * serve.ReloadPeriod) // the file is read again, and the error must not be logged again
	if n := strings.Count(c.log.String(), "configuration not reloaded"); n != 1 {
		t.Errorf("the error is logged %d times", n)
	}
	v, err := c.state.Server()
	expect.NoError(t, err)
	if len(v.Configuration.Errors) != 1 || !strings.HasPrefix(v.Configuration.Errors[0], c.path+":") {
		t.Errorf("the state directory has %q", v.Configuration.Errors)
	}
	// A source that cannot be opened changes nothing either.
	c.change(map[string]any{"sources.contexts": []string{"none"}, "mirror.resources": []string{"namespaces"}})
	expect.Soon(t, "the error is logged", func() bool {
		return strings.Contains(c.log.String(), `context \"none\" does not exist`)
	})
	if got := codeOf("/clusters/eu/api/v1/pods")(c); got != "200" || c.names() != "eu" {
		t.Errorf("after that: %s, clusters %s", got, c.names())
	}
	c.change(map[string]any{"sources.contexts": []string{"us"}})
	expect.Soon(t, "the good file takes effect", func() bool { return c.names() == "us" })
	expect.Soon(t, "the state directory has it", func() bool {
		v, err := c.state.Server()
		return err == nil && slices.Equal(v.Contexts, []string{"us"}) && len(v.Configuration.Errors) == 0
	})
}

// TestReload_hangup reads the file at once after a signal, even if it is the same: what it names
// may have changed.
func TestReload_hangup(t *testing.T) {
	w := newKeyClusters(t)
	folder := t.TempDir() + "/later"
	c := configure(t, w.one())
	c.change(map[string]any{"sources.directories": []string{folder}})
	expect.Soon(t, "the error is logged", func() bool { return strings.Contains(c.log.String(), "--kubeconfig-dir") })
	expect.NoError(t, os.Rename(folderOf(t, "two", w.onlyUS), folder))
	expect.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	expect.Soon(t, "the folder is used", func() bool { return c.names() == "eu two" })
}

// TestReload_hangupWithoutFile sends the signal to a server without a configuration file, which
// goes on.
func TestReload_hangupWithoutFile(t *testing.T) {
	early := make(chan os.Signal, 1) // before the server is ready for the signal
	signal.Notify(early, syscall.SIGHUP)
	defer signal.Stop(early)
	s := &state.Dir{Path: t.TempDir()}
	log, stop := startServe(t, s, "--kubeconfig", commandtest.WriteKubeconfig(t, map[string]string{"a": ""}))
	expect.Soon(t, "the signal is not fatal", func() bool {
		expect.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		time.Sleep(10 * time.Millisecond) // the pace of the signals
		return strings.Contains(log.String(), "nothing to reload")
	})
	expect.NoError(t, stop())
}
