// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// grievances are the lines of client-go's log that tell of errors and warnings.
type grievances struct {
	mu    sync.Mutex
	lines []grievance
}

type grievance struct {
	at   time.Time
	text string
}

// listenToKlog takes over the log of client-go, for as long as the process lives.
func listenToKlog(t *testing.T) *grievances {
	t.Helper()
	g := &grievances{}
	settings := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(settings)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := settings.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	// Everything goes to the log of the least severity too.
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("INFO", g)
	return g
}

// warning marks what client-go logs of a watch that ended without saying why.
const warning = "Warning: "

// Write takes one message.
func (g *grievances) Write(b []byte) (int, error) {
	line := string(b)
	if !strings.HasPrefix(line, "I") || strings.Contains(line, warning) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lines = append(g.lines, grievance{time.Now(), strings.TrimSpace(line)})
	}
	return len(b), nil
}

// since are the lines after a moment.
func (g *grievances) since(moment time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []string
	for _, l := range g.lines {
		if l.at.After(moment) {
			found = append(found, l.text)
		}
	}
	return found
}

var (
	logHeader = regexp.MustCompile(`^([EWI])\d+ [\d:.]+ +\d+ [^\]]*\] `)
	specifics = regexp.MustCompile(`(?:time|reconcileID)=\S+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.:]*|reflector="[^"]*"|type="[^"]*"`)
)

// tally counts lines that differ only in when, where and of which type.
func tally(lines []string) string {
	counts := map[string]int{}
	for _, line := range lines {
		counts[specifics.ReplaceAllString(logHeader.ReplaceAllString(line, "$1 "), "*")]++
	}
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "\n  %4d %s", counts[text], text)
	}
	return b.String()
}
