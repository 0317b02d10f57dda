// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package progress shows the first sync of a fleet in a terminal: a line for each cluster, or,
// if not all fit, for as many as fit of those that are not done, and a line about all of them.
package progress

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// interval is the time between two pictures.
	interval = 200 * time.Millisecond
	// share limits the share of one processor that the pictures take: the time between two is
	// at least this many times as long as the last one took, up to maxInterval.
	share       = 20
	maxInterval = time.Second
	// barWidth is the number of characters of a bar.
	barWidth = 24
	// maxName limits the characters of a name.
	maxName = 32
)

// cluster is the progress of one cluster.
type cluster struct {
	name string
	fleet.Status
}

// settled reports whether the first sync of the cluster is over, or the cluster cannot be
// reached.
func (c *cluster) settled() bool {
	return c.State == fleet.Live || c.State == fleet.Stale || c.failed()
}

// failed reports whether the cluster cannot be reached.
func (c *cluster) failed() bool { return c.State == fleet.Connecting && c.Err != nil }

// part returns how much of the cluster has been read, from 0 to 1: the mean of the parts of
// its resources and of its objects. Before the server has counted objects, none of them has.
func (c *cluster) part() float64 {
	if c.Resources == 0 {
		return 0
	}
	resources, objects := float64(c.Synced)/float64(c.Resources), 0.0
	switch {
	case c.Expected > 0:
		objects = min(float64(c.Objects)/float64(c.Expected), 1)
	case c.Synced == c.Resources:
		objects = 1
	}
	return (resources + objects) / 2
}

// Run shows the progress of a fleet until every cluster has synced or cannot be reached, or
// ctx ends. Then it removes the lines.
func Run(ctx context.Context, f *fleet.Fleet, area *terminal.Area) error {
	began := time.Now()
	settled := map[*fleet.Member]cluster{}
	for {
		start := time.Now()
		all, done := read(f, settled)
		if done {
			return area.Set(nil)
		}
		if err := area.Set(lines(all, area.Rows(), time.Since(began))); err != nil {
			return err
		}
		if timer.Sleep(ctx, max(interval, min(share*time.Since(start), maxInterval))) != nil {
			return area.Set(nil)
		}
	}
}

// read returns the progress of all clusters, and whether all are settled. It reads the status
// of a settled cluster once.
func read(f *fleet.Fleet, settled map[*fleet.Member]cluster) (all []cluster, done bool) {
	members := f.Members()
	done = f.Known()
	for _, m := range members {
		c, ok := settled[m]
		if !ok {
			c = cluster{m.Name(), m.Status()}
			if c.settled() {
				settled[m] = c
			} else {
				done = false
			}
		}
		all = append(all, c)
	}
	return all, done
}

// lines returns the picture in at most a number of lines.
func lines(all []cluster, rows int, after time.Duration) []string {
	width := 0
	for i := range all {
		width = max(width, min(utf8.RuneCountInString(all[i].name), maxName))
	}
	shown, rest := all, 0
	if len(all) > rows-1 { // the last line is about all of them
		shown = nil
		for _, c := range all {
			if c.settled() {
				continue
			}
			if len(shown) >= rows-2 {
				rest++
				continue
			}
			shown = append(shown, c)
		}
	}
	var text []string
	for i := range shown {
		text = append(text, shown[i].line(width))
	}
	if rest > 0 {
		text = append(text, fmt.Sprintf("… and %d more clusters", rest))
	}
	return append(text, summary(all, after))
}

// line returns the bar of a cluster.
func (c *cluster) line(width int) string {
	name := terminal.Fit(c.name, min(width, maxName))
	name += strings.Repeat(" ", max(0, width-utf8.RuneCountInString(name)))
	switch {
	case c.failed():
		cause, _, _ := strings.Cut(c.Err.Error(), "\n") // discovery joins errors that have one cause
		return fmt.Sprintf("%s  %s", name, terminal.Red.Text(fmt.Sprintf("%s: %s", fleet.TroubleOf(c.Err), cause)))
	case c.State == fleet.Connecting:
		return name + "  connecting"
	}
	objects := fmt.Sprint(c.Objects)
	if c.Expected > c.Objects {
		objects += fmt.Sprintf("/%d", c.Expected)
	}
	return fmt.Sprintf("%s  %s %3.0f%%  %d/%d resources  %s objects", name, bar(c.part(), c.settled()), 100*c.shown(),
		c.Synced, c.Resources, objects)
}

// shown returns the part that is shown: one that is settled is whole, even if some resources
// fail.
func (c *cluster) shown() float64 {
	if c.settled() {
		return 1
	}
	return min(c.part(), 0.99)
}

// bar returns a bar of which a part is filled.
func bar(part float64, done bool) string {
	n := int(part * barWidth)
	style := terminal.Yellow
	if done {
		n, style = barWidth, terminal.Green
	}
	return style.Text(strings.Repeat("█", n)) + terminal.Dim.Text(strings.Repeat("░", barWidth-n))
}

// summary returns the line about all clusters.
func summary(all []cluster, after time.Duration) string {
	var ready, failed, synced, resources, objects int
	for i := range all {
		c := &all[i]
		switch {
		case c.failed():
			failed++
		case c.settled():
			ready++
		}
		synced, resources, objects = synced+c.Synced, resources+c.Resources, objects+c.Objects
	}
	text := fmt.Sprintf("first sync: %d of %d clusters", ready, len(all))
	if failed > 0 {
		text += fmt.Sprintf(", %d unreachable", failed)
	}
	return text + fmt.Sprintf(", %d/%d resources, %d objects, %s", synced, resources, objects,
		after.Round(100*time.Millisecond))
}
