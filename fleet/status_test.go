// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
)

// TestStatus_directoryError has a directory that fails for a while. The status has its
// error for exactly that time, whatever discovery finds meanwhile.
func TestStatus_directoryError(t *testing.T) {
	f, err := New(noDirectory{}, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		f.runs.Wait()
	}()
	f.running = ctx
	good := Entry{Name: "a", Config: &rest.Config{Host: "http://127.0.0.1:1"}, Access: "old"}
	bad := Entry{Name: "a", Err: errors.New("secret is being replaced")}
	m := f.newMember("a")
	m.end = cancel
	m.use(good)
	f.members["a"] = m
	// discover simulates a cluster that responds.
	discover := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.foundLocked(nil)
	}
	check := func(when, want string) {
		t.Helper()
		switch err := m.Status().Err; {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s the status has the error %v, want %q", when, err, want)
		}
	}
	discover()
	check("at first", "")
	f.admit([]Entry{bad})
	check("while the directory fails", "secret is being replaced")
	discover()
	check("after a discovery while the directory fails", "secret is being replaced")
	f.admit([]Entry{bad})
	f.admit([]Entry{good})
	check("once the directory has recovered", "")

	// The same, with new credentials.
	f.admit([]Entry{bad})
	f.admit([]Entry{{Name: "a", Config: &rest.Config{Host: "http://127.0.0.1:1", BearerToken: "new"}, Access: "new"}})
	check("with new credentials", "")
}

// TestUse_unverifiedServer warns once of a server whose certificate is not verified.
func TestUse_unverifiedServer(t *testing.T) {
	for _, c := range []struct {
		config rest.Config
		want   int
	}{
		{rest.Config{Host: "https://127.0.0.1:1"}, 0},
		{rest.Config{Host: "http://127.0.0.1:1"}, 1},
		{rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, 1},
	} {
		log := &lines{}
		f, err := New(noDirectory{}, &Options{Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		m := f.newMember("a")
		for _, token := range []string{"old", "new"} {
			c.config.BearerToken = token
			m.use(Entry{Name: "a", Config: &c.config, Access: token})
		}
		if got := strings.Count(strings.Join(log.take(), "\n"), "the API server is not authenticated"); got != c.want {
			t.Errorf("%s, insecure %t: %d warnings, want %d", c.config.Host, c.config.Insecure, got, c.want)
		}
		m.Cluster().CloseIdleConnections()
	}
}

// TestStatus_firstWatchFails has a resource that was listed and cannot be watched.
func TestStatus_firstWatchFails(t *testing.T) {
	f, err := New(noDirectory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := f.newMember("a")
	m.discovered = time.Now()
	r := ResourceStatus{Status: watershed.Status{Synced: true, Reflector: reflector.Status{State: reflector.Listing}}}
	if s := m.statusLocked([]ResourceStatus{r}); s.State != Live {
		t.Errorf("between list and watch it is %s", s.State)
	}
	r.Reflector.State, r.Reflector.Err, r.Reflector.ErrAt = reflector.Waiting, errors.New("broken"),
		time.Now().Add(-time.Second)
	if s := m.statusLocked([]ResourceStatus{r}); s.State != Stale || s.Since != r.Reflector.ErrAt || s.Err == nil {
		t.Errorf("with a watch that fails it is %+v", s)
	}
	// An error stays in the status after it is over.
	r.Reflector.State = reflector.Watching
	if s := m.statusLocked([]ResourceStatus{r}); s.State != Live {
		t.Errorf("once it is watched it is %s", s.State)
	}
}
