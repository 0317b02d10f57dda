// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/audit"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// newFront returns a server like that of serve.
func newFront(t *testing.T, l net.Listener, handler http.Handler, ca *serving.Authority) *serving.Server {
	t.Helper()
	front, err := serving.New(l, handler, &serving.Options{Certificates: ca, LongRunning: isWatch,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return front
}

// TestService_endsInOrder checks that watches end at once, other requests when they are
// done, and the parts that they read from after them.
func TestService_endsInOrder(t *testing.T) {
	ca, _ := commandtest.OpenAuthority(t, &state.Dir{Path: t.TempDir()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	finish, entered, partEnded := make(chan struct{}), make(chan struct{}, 2), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		entered <- struct{}{}
		if isWatch(r) {
			<-r.Context().Done()
			return
		}
		<-finish
		select {
		case <-partEnded:
			t.Error("what a request reads from has ended before it")
		default:
		}
		_, _ = io.WriteString(w, "all of it")
	})
	var log strings.Builder // read after the service has ended
	s := &service{
		logger:  slog.New(slog.NewTextHandler(&log, nil)),
		servers: []func(context.Context) error{newFront(t, l, handler, ca).Run},
		parts: []func(context.Context) error{func(ctx context.Context) error {
			<-ctx.Done()
			close(partEnded)
			return nil
		}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()

	client, err := rest.HTTPClientFor(&rest.Config{Host: "https://" + l.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.Bundle()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	bodies := map[string]io.ReadCloser{}
	for _, path := range []string{"/?watch", "/list"} {
		resp, err := client.Get("https://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		bodies[path] = resp.Body
		<-entered
	}
	cancel()
	if text, err := io.ReadAll(bodies["/?watch"]); err != nil || len(text) > 0 {
		t.Errorf("the watch ends with %q, %v", text, err)
	}
	select {
	case err := <-done:
		t.Fatalf("the service ends before its requests: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if text, err := io.ReadAll(bodies["/list"]); err != nil || string(text) != "all of it" {
		t.Errorf("the list ends with %q, %v", text, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	left := log.String()
	for _, line := range []string{
		`msg="stopping: requests may finish" cause="context canceled"`,
		`msg="all requests have ended"`, "msg=stopped",
	} {
		_, after, found := strings.Cut(left, line)
		if !found {
			t.Errorf("the log does not have %s, or not in this order:\n%s", line, &log)
		}
		left = after
	}
	if _, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		t.Error("somebody still listens")
	}
}

// TestService_endsWithAPart checks that a part that fails ends the others.
func TestService_endsWithAPart(t *testing.T) {
	ca, _ := commandtest.OpenAuthority(t, &state.Dir{Path: t.TempDir()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	s := &service{
		logger:  slog.New(slog.DiscardHandler),
		servers: []func(context.Context) error{newFront(t, l, http.NotFoundHandler(), ca).Run},
		parts: []func(context.Context) error{
			func(context.Context) error { return broken },
			func(ctx context.Context) error { <-ctx.Done(); return nil },
		},
	}
	if err := s.run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the service ends with %v", err)
	}
}

func TestRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Options{Path: path, MaxSize: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	fault := errors.New("fault")
	if err := recorded(func(context.Context) error { return fault }, log.Run)(t.Context()); !errors.Is(err, fault) {
		t.Errorf("the error is %v", err)
	}
}
