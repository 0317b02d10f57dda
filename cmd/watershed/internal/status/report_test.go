// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
)

var update = flag.Bool("update", false, "write the files in testdata")

// golden compares lines with a file.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path, text := filepath.Join("testdata", name+".txt"), strings.Join(lines, "\n")+"\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, text, want)
	}
}

var noon = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// ago returns a timestamp of the document.
func ago(d time.Duration) time.Time { return noon.Add(-d) }

// example returns a report with clusters in every state.
func example() *Report {
	return &Report{
		At: noon, Program: "watershed", Contexts: map[string]string{
			"eu-1": "eu-1", "eu-2": "admin@eu-2", "us-1": "us-1",
		},
		Notes: []string{"note: 1 cluster is left out: you may not read it"},
		Clusters: document.Clusters{
			Version: "v1", Process: &document.Process{Memory: 300 << 20, Readers: 2},
			Clusters: []document.Cluster{
				{
					Name:      "eu-1",
					UID:       "01-02",
					Version:   "v1.37.1",
					State:     "live",
					Since:     ago(time.Hour),
					Synced:    62,
					Resources: 62,
					Objects:   12345,
					Memory:    9_400_000,
					Readers:   17,
					Heard:     ago(3 * time.Second),
					Quiet:     ago(59 * time.Second),
					Latency:   0.0123,
					Aliases:   []string{"a", "b"},
				},
				{
					Name: "eu-2", Version: "v1.36.0", State: "stale", Since: ago(4 * time.Minute), Synced: 62,
					Resources: 62, Objects: 300, Memory: 700_000, Readers: 1, Heard: ago(4 * time.Minute), Queued: 3,
					Problems: []fleet.Problem{
						{
							Reason:  string(fleet.Unreachable),
							Since:   ago(4 * time.Minute),
							Message: "watch pods in eu-2: connection refused",
						},
						{
							Reason:  fleet.Flapping,
							Since:   ago(8 * time.Minute),
							Message: "the watches broke 5 times within 10 minutes and were resumed",
						},
					},
				},
				{Name: "new", State: "connecting", Since: ago(2 * time.Second)},
				{Name: "us-1", Version: "v1.37.1", State: "syncing", Since: ago(5 * time.Second), Synced: 10,
					Resources: 62, Objects: 400, Expected: 90000, Memory: 512, Heard: ago(0), ClockSkew: -31,
					Problems: []fleet.Problem{
						{
							Reason:    string(fleet.Forbidden),
							Resources: []string{"secrets", "leases.coordination.k8s.io"},
							More:      2,
							Message:   `secrets is forbidden`,
						},
					}},
			},
		},
	}
}

func TestReport(t *testing.T) {
	golden(t, "table", example().Lines(false, false))
	golden(t, "wide", example().Lines(true, false))
	golden(t, "none", (&Report{At: noon}).Lines(false, false))
	// Colours do not change the columns.
	for i, line := range example().Lines(false, true) {
		plain := line
		for _, style := range []terminal.Style{terminal.Red, terminal.Green, terminal.Yellow, "\x1b[0m"} {
			plain = strings.ReplaceAll(plain, string(style), "")
		}
		if want := example().Lines(false, false)[i]; plain != want {
			t.Errorf("%q, want %q", plain, want)
		}
	}
}

func TestReport_select(t *testing.T) {
	r := example()
	if err := r.Select([]string{"us-1", "b"}); err != nil || len(r.Clusters.Clusters) != 2 ||
		r.Clusters.Clusters[1].Name != "eu-1" {
		t.Errorf("%v: %v", err, r.Clusters.Clusters)
	}
	if err := example().Select([]string{"eu-1", "none"}); err == nil ||
		err.Error() != `cluster "none" not found: the server has eu-1, eu-2, new, us-1` {
		t.Error(err)
	}
}

// TestReport_page has more clusters than the screen has lines: it shows those with problems
// and the totals.
func TestReport_page(t *testing.T) {
	r := &Report{At: noon, Program: "watershed"}
	for i := range 1000 {
		c := document.Cluster{Name: fmt.Sprintf("cluster-%03d", i), State: "live", Synced: 2, Resources: 2, Objects: 3}
		if i%40 == 0 {
			c.Problems = []fleet.Problem{{Reason: fleet.Slow, Message: "slow"}}
		}
		r.Clusters.Clusters = append(r.Clusters.Clusters, c)
	}
	for _, height := range []int{8, 10, 24, 25, 50, 100, 500} {
		page := r.Page(false, false, 200, height)
		if len(page) > height || len(page) < height-3 {
			t.Errorf("%d lines for %d rows:\n%s", len(page), height, strings.Join(page, "\n"))
		}
		if last := page[len(page)-1]; last != r.Totals() ||
			!strings.HasPrefix(last, "1000 clusters (1000 live), 2000/2000 resources, 3000 objects") {
			t.Errorf("the last line is %q", last)
		}
		if !strings.Contains(page[1], "cluster-000") || height > 10 && !strings.Contains(page[2], "cluster-040") {
			t.Errorf("clusters with problems do not come first: %q", page[:3])
		}
	}
	golden(t, "page", r.Page(false, false, 80, 24))
	if got := example().Page(false, false, 500, 100); strings.Join(got,
		"\n") != strings.Join(example().Lines(false, false), "\n") {
		t.Errorf("a large page is not the whole report:\n%s", strings.Join(got, "\n"))
	}
	for height := 5; height < 40; height++ {
		if page := example().Page(false, false, 60, height); len(page) > max(height, 10) {
			t.Errorf("%d lines for %d rows:\n%s", len(page), height, strings.Join(page, "\n"))
		}
	}
}

func TestChanges(t *testing.T) {
	c, r := NewChanges(false), example()
	if lines := c.Next(r); len(lines) != 5 {
		t.Errorf("first: %q", lines)
	}
	r = example()
	r.At = noon.Add(time.Hour)
	r.Clusters.Clusters[0].Objects++
	r.Clusters.Clusters[0].Readers++
	if lines := c.Next(r); len(lines) != 0 {
		t.Errorf("ages and numbers: %q", lines)
	}
	r = example()
	r.Clusters.Clusters[1].Problems = nil
	r.Clusters.Clusters[3].Synced = 62
	r.Clusters.Clusters = append(r.Clusters.Clusters[:2], r.Clusters.Clusters[3:]...)
	lines := c.Next(r)
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "eu-2") || !strings.HasPrefix(lines[1], "us-1") ||
		!strings.HasPrefix(lines[2], "new") || !strings.Contains(lines[2], "gone") {
		t.Errorf("changes: %q", lines)
	}
	if lines := c.Next(r); len(lines) != 0 {
		t.Errorf("again: %q", lines)
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1.0Ki", 10 << 10: "10Ki", 3 << 29: "1.5Gi", 700_000: "684Ki", 1 << 40: "1024Gi",
	} {
		if got := size(bytes); got != want {
			t.Errorf("%d is %s, want %s", bytes, got, want)
		}
	}
}

// TestReport_membership describes a server in a replica group, one that has lost its Lease, and one
// without a group.
func TestReport_membership(t *testing.T) {
	for want, m := range map[string]*document.Membership{
		"": nil,
		"replica group pair: slot 7, Lease renewed 1s ago, clock of its cluster +3s, versions 12s ahead; " +
			"1 other replica (slot 300)": {
			Group: "pair", Slot: 7, Owned: true, Renewed: true, Age: 1.2, ClockSkew: 3.1, Ahead: 12,
			Peers: []document.Peer{{Slot: 300}},
		},
		"replica group pair: no Lease, not renewed; no other replica": {Group: "pair"},
	} {
		r := &Report{Clusters: document.Clusters{Process: &document.Process{Membership: m}}}
		if got := strings.Join(r.Membership(), "\n"); got != want {
			t.Errorf("the line is %q, want %q", got, want)
		}
	}
}
