// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package status formats the state of a server's clusters for people: a table, each problem
// and what to do about it, the warnings, the replica group, and totals.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/watershed-project/watershed/cmd/watershed/internal/remedy"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
)

// Report is the state of a server's clusters at one time.
type Report struct {
	document.Clusters
	// Notes are the server's warnings, such as the number of clusters that the caller does
	// not see.
	Notes []string
	// At is the time of the server. Ages are relative to it.
	At time.Time
	// Program is the name of the command, for texts that say what to do.
	Program string
	// Contexts are the kubeconfig contexts of clusters, by the name of the cluster.
	Contexts map[string]string
	// Kubeconfig is the file with the contexts, "" if kubectl reads it by default.
	Kubeconfig string
}

// Select leaves only the clusters with the names, which may be aliases. It returns an error
// if one does not exist.
func (r *Report) Select(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var selected []document.Cluster
	for _, name := range names {
		i := slices.IndexFunc(r.Clusters.Clusters, func(c document.Cluster) bool {
			return c.Name == name || slices.Contains(c.Aliases, name)
		})
		if i < 0 {
			return fmt.Errorf("cluster %q not found%s", name, r.suggestion())
		}
		selected = append(selected, r.Clusters.Clusters[i])
	}
	r.Clusters.Clusters = selected
	for i := range r.Clusters.Replicas {
		p := &r.Clusters.Replicas[i]
		p.Clusters = slices.DeleteFunc(p.Clusters, func(c document.ReplicaCluster) bool {
			return !slices.ContainsFunc(selected, func(s document.Cluster) bool { return s.Name == c.Name })
		})
	}
	return nil
}

// suggestion lists some clusters for an error.
func (r *Report) suggestion() string {
	var names []string
	for _, c := range r.Clusters.Clusters {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return ": the server has no clusters, or you may not see any"
	}
	return ": the server has " + Names(names, 10)
}

// Names returns names as a text. Of more than a number it counts the last ones.
func Names(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// age returns the time since a time of the document, "" if it is zero.
func (r *Report) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, r.At.Sub(t)))
}

// Totals returns one line about all clusters.
func (r *Report) Totals() string {
	states := map[string]int{}
	var synced, resources, objects, problems int
	var memory, readers int64
	for _, c := range r.Clusters.Clusters {
		states[c.State]++
		synced, resources, objects = synced+c.Synced, resources+c.Resources, objects+c.Objects
		memory, readers = memory+c.Memory, readers+c.Readers
		problems += min(len(c.Problems), 1)
	}
	var parts []string
	for _, state := range []string{"live", "stale", "syncing", "connecting", "gone"} {
		if n := states[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	text := Counted(len(r.Clusters.Clusters), "cluster")
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	text += fmt.Sprintf(", %d/%d resources, %s in %s, %s", synced, resources, Counted(objects, "object"), size(memory),
		Counted(int(readers), "reader"))
	if p := r.Process; p != nil {
		text += fmt.Sprintf("; process: %s", size(int64(p.Memory)))
		if p.Readers > 0 {
			text += fmt.Sprintf(", %s of the fleet", Counted(int(p.Readers), "reader"))
		}
	}
	if problems > 0 {
		text += fmt.Sprintf("; %s with problems", Counted(problems, "cluster"))
	}
	return text
}

// Counted returns a number with its noun.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size returns a number of bytes as kubectl top does, with one more digit if it is small.
func size(bytes int64) string {
	for _, unit := range []struct {
		name string
		of   int64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		switch n := float64(bytes) / float64(unit.of); {
		case n >= 10:
			return fmt.Sprintf("%.0f%s", n, unit.name)
		case n >= 1:
			return fmt.Sprintf("%.1f%s", n, unit.name)
		}
	}
	return fmt.Sprint(bytes)
}

// Problems returns two lines for each problem: what it is and what to do.
func (r *Report) Problems() []string {
	var lines []string
	if r.Process != nil {
		for _, p := range r.Process.Problems {
			lines = append(lines, r.describe("server", p),
				"  do: "+remedy.For(p.Reason, remedy.Subject{Program: r.Program}))
		}
	}
	for _, c := range r.Clusters.Clusters {
		for _, p := range c.Problems {
			about := remedy.Subject{
				Program: r.Program, Cluster: c.Name, Context: r.Contexts[c.Name], Kubeconfig: r.Kubeconfig,
			}
			if p.More == 0 {
				about.Resources = p.Resources // commands name all or none
			}
			lines = append(lines, r.describe(c.Name, p), "  do: "+remedy.For(p.Reason, about))
		}
	}
	return lines
}

// Membership returns a line about the replica group, none if the server is not in one.
func (r *Report) Membership() []string {
	if r.Process == nil || r.Process.Membership == nil {
		return nil
	}
	m := r.Process.Membership
	text := fmt.Sprintf("replica group %s: ", m.Group)
	if m.Owned {
		seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)).Round(time.Second) }
		text += fmt.Sprintf("slot %d, Lease renewed %s ago, clock of its cluster %+gs, versions %s ahead", m.Slot,
			seconds(m.Age), seconds(m.ClockSkew).Seconds(), seconds(m.Ahead))
	} else {
		text += "no Lease"
	}
	if !m.Renewed {
		text += ", not renewed"
	}
	var peers []string
	for _, p := range m.Peers {
		peers = append(peers, fmt.Sprintf("slot %d", p.Slot))
	}
	if len(peers) == 0 {
		return []string{text + "; no other replica"}
	}
	return []string{text + "; " + Counted(len(peers), "other replica") + " (" + Names(peers, 10) + ")"}
}

// describe returns a problem on one line.
func (r *Report) describe(cluster string, p fleet.Problem) string {
	text := fmt.Sprintf("%s: %s", cluster, p.Reason)
	if len(p.Resources) > 0 {
		text += " " + strings.Join(p.Resources, ", ")
		if p.More > 0 {
			text += fmt.Sprintf(" and %d more", p.More)
		}
	}
	if age := r.age(p.Since); age != "" {
		text += " for " + age
	}
	return text + ": " + p.Message
}
