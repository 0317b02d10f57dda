// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// output is a buffer for several writers.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// auditedReplica is a replica with access control and an audit log, as serve runs them.
type auditedReplica struct {
	*httptest.Server
	// messages are the log at level Debug, and events is the file of audit events.
	messages *output
	events   string
	log      *audit.Log
}

// startAudited serves clusters, and returns when the first one has synced. Requests with the
// parameter panic fail.
func startAudited(t *testing.T, resources []string, entries ...fleet.Entry) *auditedReplica {
	t.Helper()
	w := &auditedReplica{messages: &output{}, events: filepath.Join(t.TempDir(), "audit.log")}
	logger := slog.New(slog.NewTextHandler(w.messages, &slog.HandlerOptions{Level: slog.LevelDebug}))
	klog.SetSlogLogger(logger)
	t.Cleanup(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })
	d, err := directory.NewStatic(entries...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(d, &fleet.Options{Resources: resources, History: 16 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	control, err := access.New(f, access.Options{
		Owner: owner, Logger: logger, Crossing: access.Crossing{Home: entries[0].Name},
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.log, err = audit.Open(audit.Options{Path: w.events, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	handler, err := replica.New(f, &replica.Options{
		Logger: logger, Admit: control.Admit, ProgramResources: control.Own(), Audit: w.log.Audit,
		Authorize: func(r *http.Request, q *replica.Request) (*replica.Access, error) {
			if q.Query.Has("panic") {
				panic("fault of the program")
			}
			return control.Authorize(r, q)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Server = httptest.NewUnstartedServer(control.Handler(handler))
	w.EnableHTTP2 = true
	w.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	w.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	w.StartTLS()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{f.Run, handler.Run, control.Run, w.log.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
		cancel()
		running.Wait()
		control.Close()
	})
	expect.Soon(t, "the first cluster", func() bool {
		m, ok := f.Member(entries[0].Name)
		return ok && m.Status().State == fleet.Live
	})
	return w
}

// owner is the token of the owner.
const owner = "marker-of-the-owner"

// bareClient returns a client of a cluster that adds no credentials.
func bareClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// eventsOf returns the events in a file of a request, whose user agent is unique. The slice
// has the events of a watch in the order of their stages.
func eventsOf(t *testing.T, path, agent string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for line := range strings.Lines(string(text)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // it is being written
		}
		if e["userAgent"] == agent {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b map[string]any) int {
		return strings.Compare(b["stage"].(string), a["stage"].(string)) // Started is before Complete
	})
	return all
}
