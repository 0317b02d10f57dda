// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet/internal/journal"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/reflector"
)

// lines is a log that a test reads while it is written.
type lines struct{ expect.Output }

// take returns the lines since the last call, without times, durations and numbers of
// objects.
func (l *lines) take() []string {
	text := strings.TrimSpace(l.Take())
	if text == "" {
		return nil
	}
	return strings.Split(varying.ReplaceAllString(text, ""), "\n")
}

// count returns the number of lines since the last take.
func (l *lines) count() int {
	return strings.Count(l.String(), "\n")
}

var varying = regexp.MustCompile(`(?m)^time=\S+ | (?:objects|expected|after)=\S+| err=.*$`)

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// fixed is a directory that does not change.
type fixed map[string]*rest.Config

func (d fixed) Follow(_ context.Context, notify func([]Entry)) error {
	var entries []Entry
	for name, cfg := range d {
		entries = append(entries, Entry{Name: name, Config: cfg, Access: cfg.Host})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	notify(entries)
	return nil
}

// TestJournal_oneLinePerClusterAndChange disconnects a cluster from the network and
// reconnects it, while its resources are retried many times.
func TestJournal_oneLinePerClusterAndChange(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	network, err := kubetest.NewProxy(s.Cluster(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	log := &lines{}
	f, err := New(fixed{"a": network.Config(s.Cluster(0).Config()), "b": s.Cluster(1).Config()}, &Options{
		Logger: log.logger(), Reflector: reflector.Options{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.journal.Cadence = journal.Cadence{
		Pace: 5 * time.Millisecond, Sweep: time.Minute, Burst: time.Millisecond, Failure: 20 * time.Millisecond,
		Patience: time.Minute,
		Progress: time.Minute, Idle: time.Minute,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: never; log:\n%s", what, strings.Join(log.take(), "\n"))
			}
		}
	}
	expect := func(want ...string) {
		t.Helper()
		until(fmt.Sprintf("%d lines", len(want)), func() bool { return log.count() >= len(want) })
		got := log.take()
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log, wanted (-) and written (+):\n%s", diff)
		}
	}
	until("members", func() bool { return len(f.Members()) == 2 })
	a := f.Members()[0]
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := a.Status().Resources
	expect(
		fmt.Sprintf("level=INFO msg=\"cluster live\" cluster=a resources=%d", n),
		fmt.Sprintf("level=INFO msg=\"cluster live\" cluster=b resources=%d", n),
		fmt.Sprintf("level=INFO msg=\"first sync done\" clusters=2 live=2 unreachable=0 resources=%d synced=%d", 2*n,
			2*n),
	)

	network.Down()
	expect(fmt.Sprintf("level=WARN msg=\"cluster unreachable\" cluster=a resources=%d", n))
	until("many retries", func() bool {
		return !slices.ContainsFunc(a.Resources(), func(r ResourceStatus) bool { return r.Reflector.Failures < 10 })
	})
	expect()
	if err := network.Up(); err != nil {
		t.Fatal(err)
	}
	expect(fmt.Sprintf("level=INFO msg=\"cluster live again\" cluster=a resources=%d", n))
	until("live", func() bool { return a.Status().State == Live })
	expect()
}
