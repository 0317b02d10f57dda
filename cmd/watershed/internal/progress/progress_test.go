// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package progress

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var styles = regexp.MustCompile(`\x1b\[\d*m`)

// plain returns lines without colours.
func plain(lines []string) string { return styles.ReplaceAllString(strings.Join(lines, "\n"), "") }

func TestLines(t *testing.T) {
	all := []cluster{
		{"eu-1", fleet.Status{State: fleet.Live, Synced: 62, Resources: 62, Objects: 259, Expected: 259}},
		{"eu-2", fleet.Status{State: fleet.Syncing, Synced: 31, Resources: 62, Objects: 500, Expected: 1000}},
		{"eu-3", fleet.Status{State: fleet.Connecting}},
		{
			"a-long-name",
			fleet.Status{State: fleet.Connecting, Err: fmt.Errorf("/api: %w\n/apis: refused", syscall.ECONNREFUSED)},
		},
		{"us-1", fleet.Status{State: fleet.Syncing, Synced: 62, Resources: 62, Objects: 10, Expected: 10}},
		{"us-2", fleet.Status{State: fleet.Syncing, Synced: 31, Resources: 62}},
	}
	want := `eu-1         ████████████████████████ 100%  62/62 resources  259 objects
eu-2         ████████████░░░░░░░░░░░░  50%  31/62 resources  500/1000 objects
eu-3         connecting
a-long-name  Unreachable: /api: connection refused
us-1         ████████████████████████  99%  62/62 resources  10 objects
us-2         ██████░░░░░░░░░░░░░░░░░░  25%  31/62 resources  0 objects
first sync: 1 of 6 clusters, 1 unreachable, 186/248 resources, 769 objects, 1.2s`
	if got := plain(lines(all, 24, 1234*time.Millisecond)); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	// Clusters that are settled make room for others.
	want = `eu-2         ████████████░░░░░░░░░░░░  50%  31/62 resources  500/1000 objects
eu-3         connecting
… and 2 more clusters
first sync: 1 of 6 clusters, 1 unreachable, 186/248 resources, 769 objects, 1.2s`
	if got := plain(lines(all, 4, 1234*time.Millisecond)); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// A terminal shows as many clusters as fit, however many there are.
func TestLines_many(t *testing.T) {
	var all []cluster
	for i := range 1000 {
		all = append(all, cluster{fmt.Sprintf("cluster-%d", i), fleet.Status{State: fleet.State(i % 3), Resources: 60}})
	}
	for _, rows := range []int{2, 3, 24, 50, 999, 1000, 1001, 2000} {
		if n := len(lines(all, rows, 0)); n > rows {
			t.Errorf("%d lines for %d rows", n, rows)
		}
	}
}

// TestRun shows the first sync of simulated clusters, and returns when it is over.
func TestRun(t *testing.T) {
	sim, err := simulated.New(&simulated.Options{Clusters: 3, Pods: 2000})
	expect.NoError(t, err)
	defer sim.Close()
	var (
		entries []fleet.Entry
		out     expect.Output
	)
	for i := range 3 {
		cfg := sim.Cluster(i).Config()
		if i == 1 {
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return untilShown{next, &out, sim.Cluster(i).Name()}
			})
		}
		entries = append(entries, entry(t, sim.Cluster(i).Name(), cfg))
	}
	entries = append(entries, entry(t, "z-down", &rest.Config{Host: "https://127.0.0.1:1"}))
	f, err := fleet.New(fixed(entries), &fleet.Options{Logger: slog.New(slog.DiscardHandler)})
	expect.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	running := make(chan error, 1)
	go func() { running <- f.Run(ctx) }()
	expect.NoError(t, Run(ctx, f, terminal.NewArea(&out)))
	expect.NoError(t, ctx.Err())
	for _, m := range f.Members() {
		if s := m.Status(); s.State != fleet.Live && s.Err == nil {
			t.Errorf("%s is %s at the end", m.Name(), s)
		}
	}
	cancel()
	expect.NoError(t, <-running)
	text := out.String()
	if !strings.Contains(text, "first sync: ") || !strings.Contains(text, "simulated-00001") ||
		!strings.HasSuffix(text, "\x1b[J") {
		t.Errorf("%q", text)
	}
}

// untilShown delays requests until a name is shown, which a fast sync could end before.
type untilShown struct {
	http.RoundTripper
	out  *expect.Output
	name string
}

// WrappedRoundTripper implements an interface of client-go, which logs a warning without it.
func (x untilShown) WrappedRoundTripper() http.RoundTripper { return x.RoundTripper }

func (x untilShown) RoundTrip(r *http.Request) (*http.Response, error) {
	for !strings.Contains(x.out.String(), x.name) {
		if err := timer.Sleep(r.Context(), 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return x.RoundTripper.RoundTrip(r)
}

// fixed is a directory that does not change.
type fixed []fleet.Entry

// Follow implements [fleet.Directory].
func (d fixed) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	notify(d)
	<-ctx.Done()
	return nil
}

func entry(t *testing.T, name string, cfg *rest.Config) fleet.Entry {
	t.Helper()
	access, err := fleet.Access(cfg)
	expect.NoError(t, err)
	return fleet.Entry{Name: name, Config: cfg, Access: access}
}
