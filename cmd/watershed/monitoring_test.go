// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/cmd/watershed/internal/exposition"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
)

// The files that describe how to watch the program, from the root of the checkout.
const (
	checkout      = "../.."
	dashboardFile = "deploy/dashboards/watershed.json"
	alertFile     = "deploy/alerts/watershed.yaml"
	ruleTestFile  = "deploy/alerts/watershed_test.yaml"
	runbookFile   = "docs/operations/runbook.md"
	statusFile    = "docs/operations/status.md"
	runbookURL    = "https://github.com/watershed-project/watershed/blob/main/" + runbookFile
)

// readCheckout returns a file of the checkout.
func readCheckout(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, name))
	expect.NoError(t, err)
	return text
}

// grafanaDashboard is the part of a Grafana dashboard that tests check.
type grafanaDashboard struct {
	UID        string
	Panels     []grafanaPanel
	Templating struct{ List []struct{ Name, Type string } }
}

// grafanaPanel is a panel, or the title of a row. The panels of a row follow its title.
type grafanaPanel struct {
	ID int
	// Type is row, timeseries, stat or table.
	Type               string
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	Datasource         *grafanaSource
	FieldConfig        struct{ Defaults struct{ Unit string } }
	Targets            []grafanaQuery
}

// grafanaSource refers to a data source.
type grafanaSource struct{ UID string }

// grafanaQuery is an expression of a panel.
type grafanaQuery struct {
	RefID, Expr, LegendFormat, Format string
	Instant                           bool
	Datasource                        grafanaSource
}

// readDashboard returns the dashboard.
func readDashboard(t *testing.T) *grafanaDashboard {
	t.Helper()
	var d grafanaDashboard
	expect.NoError(t, json.Unmarshal(readCheckout(t, dashboardFile), &d))
	return &d
}

// alertRule is an alert rule of Prometheus.
type alertRule struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

// comparison matches the end of an expression that compares it with a threshold.
var comparison = regexp.MustCompile(` [<>]=? [0-9.]+$`)

// signal returns the expression without its comparison. A signal always has a result while the
// program runs, or while the trouble lasts.
func (r *alertRule) signal() string {
	if inner, ok := strings.CutPrefix(r.Expr, "absent("); ok {
		return strings.TrimSuffix(inner, ")")
	}
	return comparison.ReplaceAllString(r.Expr, "")
}

// readAlerts returns the alert rules.
func readAlerts(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	expect.NoError(t, yaml.UnmarshalStrict(readCheckout(t, alertFile), &file))
	expect.Equal(t, len(file.Groups), 1)
	return file.Groups[0].Rules
}

// TestDashboard checks the rules of Grafana that its import does not forgive.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || len(d.UID) > 40 {
		t.Errorf("the uid %q has %d characters", d.UID, len(d.UID))
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name+" "+v.Type)
	}
	expect.Equal(t, names, []string{"datasource datasource", "cluster query"})
	ids := map[int]bool{}
	used := map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] {
			t.Errorf("panel %s has the id %d, which another has", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.W <= 0 || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %s is not in the grid: %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := used[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %s covers %s", p.Title, other)
				}
				used[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			if p.Datasource == nil || p.Datasource.UID != "${datasource}" || target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %s does not use the variable of the data source", p.Title)
			}
		}
	}
}

// TestDashboard_panels checks what a panel needs beside its place: a description, a unit and
// expressions that fit its type.
func TestDashboard_panels(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %s lacks its title, its description, its unit or its expressions", p.Title)
		}
		for i, q := range p.Targets {
			if want := string(rune('A' + i)); q.RefID != want {
				t.Errorf("panel %s: the expression %d has the refId %q, want %q", p.Title, i, q.RefID, want)
			}
			if q.Instant != (p.Type != "timeseries") || (q.Format == "table") != (p.Type == "table") {
				t.Errorf("panel %s is a %s, and an expression is for another type", p.Title, p.Type)
			}
		}
	}
}

// metricName matches the metrics of the program, of its process and of the Go runtime.
var metricName = regexp.MustCompile(`\b(?:watershed|process|go)_[a-z_]+`)

// TestExpressions_useDefinedMetrics checks both directions: no expression has a metric that
// does not exist, and every metric is in the dashboard or in an alert.
func TestExpressions_useDefinedMetrics(t *testing.T) {
	var text strings.Builder
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			text.WriteString(q.Expr + "\n")
		}
	}
	for _, a := range readAlerts(t) {
		text.WriteString(a.Expr + "\n")
	}
	used := map[string]bool{}
	for _, name := range metricName.FindAllString(text.String(), -1) {
		used[strings.TrimSuffix(name, "_bucket")] = true
	}
	defined := runtimeMetrics(t)
	for _, d := range exposition.Definitions() {
		defined[d.Name] = true
		if !used[d.Name] {
			t.Errorf("%s is in no panel and no alert", d.Name)
		}
	}
	for name := range used {
		if runtime.GOOS != "linux" && strings.HasPrefix(name, "process_") {
			continue // other systems have fewer of them
		}
		if !defined[name] {
			t.Errorf("an expression has %s, which is not defined", name)
		}
	}
}

// runtimeMetrics returns the metrics of a process and of the Go runtime.
func runtimeMetrics(t *testing.T) map[string]bool {
	t.Helper()
	registry := client.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	expect.NoError(t, err)
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	return names
}

// TestAlerts checks that each alert has its section in the runbook, the address of the section,
// and its unit test.
func TestAlerts(t *testing.T) {
	tests := string(readCheckout(t, ruleTestFile))
	sections := map[string]string{}
	for _, section := range strings.Split(string(readCheckout(t, runbookFile)), "\n## ")[1:] {
		title, content, _ := strings.Cut(section, "\n")
		sections[title] = content
	}
	var names []string
	for _, a := range readAlerts(t) {
		if slices.Contains(names, a.Alert) {
			t.Errorf("two alerts have the name %s", a.Alert)
		}
		names = append(names, a.Alert)
		section, ok := sections[a.Alert]
		if !ok {
			t.Errorf("the runbook has no section %s", a.Alert)
		}
		for _, part := range []string{"**Meaning.**", "**Look at.**", "**Do.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("the section %s of the runbook has no %s", a.Alert, part)
			}
		}
		if want := runbookURL + "#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook_url %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s lacks its summary or its description", a.Alert)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels["severity"])
		}
		if !strings.Contains(tests, "name: "+a.Alert+" fires\n") {
			t.Errorf("%s has no unit test in %s", a.Alert, ruleTestFile)
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Watershed") && !slices.Contains(names, title) {
			t.Errorf("the runbook has a section %s, which is not an alert", title)
		}
	}
}

// TestAlerts_haveTheLimitsOfTheProgram compares the limits in alerts with the constants that the
// program uses.
func TestAlerts_haveTheLimitsOfTheProgram(t *testing.T) {
	alerts := map[string]alertRule{}
	for _, a := range readAlerts(t) {
		alerts[a.Alert] = a
	}
	pressure := alerts["WatershedMemoryPressure"]
	for _, c := range []struct{ alert, text, want string }{
		{pressure.Alert, pressure.Expr, fmt.Sprintf(" >= %d", fleet.PressureHistory)},
		{
			pressure.Alert, pressure.Annotations["description"],
			fmt.Sprintf("pressure of %d and more", fleet.PressureFull),
		},
		{"WatershedSlow", alerts["WatershedSlow"].Annotations["description"], "more than two seconds"},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%s: %q lacks %q", c.alert, c.text, c.want)
		}
	}
	if (fleet.Probe{Took: 2 * time.Second}).IsSlow() || !(fleet.Probe{Took: 2*time.Second + 1}).IsSlow() {
		t.Error("a cluster is not slow from two seconds on")
	}
}

// causes matches the causes and reasons that an alert is about.
var causes = regexp.MustCompile(`(?:cause|reason)=~?"([^"]*)"`)

// TestReasons_raiseAnAlert checks that each reason in the table of status.md raises an alert of its
// own, except for those of which the page says otherwise.
func TestReasons_raiseAnAlert(t *testing.T) {
	alerted := map[string]bool{"NotStored": true}
	for _, a := range readAlerts(t) {
		for _, match := range causes.FindAllStringSubmatch(a.Expr, -1) {
			for _, reason := range strings.Split(match[1], "|") {
				alerted[reason] = true
			}
		}
	}
	_, table, _ := strings.Cut(string(readCheckout(t, statusFile)), "| reason | meaning | outputs |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 20 {
		t.Fatalf("the table of reasons in %s has %d rows", statusFile, len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row, "|")
		if strings.Contains(cells[2], "only in `check`") {
			continue
		}
		for _, reason := range strings.Split(strings.TrimSpace(cells[1]), ", ") {
			if !alerted[reason] {
				t.Errorf("no alert is about %s", reason)
			}
		}
	}
}
