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

// grievances are the errors and warnings in client-go's log.
type grievances struct {
	mu    sync.Mutex
	lines []grievance
}

type grievance struct {
	at   time.Time
	text string
}

// listenToKlog redirects the log of client-go, as long as the process lives.
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
	// All messages are also written to the log of the lowest severity.
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("INFO", g)
	return g
}

// warning marks the log line of client-go for a watch that ended without a reason.
const warning = "Warning: "

// Write receives one message.
func (g *grievances) Write(b []byte) (int, error) {
	line := string(b)
	if !strings.HasPrefix(line, "I") || strings.Contains(line, warning) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lines = append(g.lines, grievance{time.Now(), strings.TrimSpace(line)})
	}
	return len(b), nil
}

// since returns the lines after a time.
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
	specifics = regexp.MustCompile(
		`(?:time|reconcileID)=\S+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.:]*|reflector="[^"]*"|type="[^"]*"`,
	)
)

// tally counts lines that differ only in time, place and type.
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
