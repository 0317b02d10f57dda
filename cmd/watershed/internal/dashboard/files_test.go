// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package dashboard_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/dashboard"
	"github.com/watershed-project/watershed/cmd/watershed/internal/exposition"
	"github.com/watershed-project/watershed/internal/expect"
)

var update = flag.Bool("update", false, "write the files")

// The files, from the root of the checkout.
const (
	root          = "../../../.."
	dashboardFile = "deploy/dashboards/watershed.json"
	alertFile     = "deploy/alerts/watershed.yaml"
	ruleTestFile  = "deploy/alerts/watershed_test.yaml"
	runbookFile   = "docs/operations/runbook.md"
	statusFile    = "docs/operations/status.md"
)

// wantFile compares a file with its content, or writes it with -update.
func wantFile(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(root, name)
	if *update {
		expect.NoError(t, os.WriteFile(path, content, 0o644))
	}
	got, err := os.ReadFile(path)
	expect.NoError(t, err)
	if string(got) != string(content) {
		t.Errorf("%s is not what the code makes: run go test ./cmd/watershed/internal/dashboard -update", name)
	}
}

// gridPos is the place of a panel.
type gridPos struct{ X, Y, W, H int }

// rendered is the part of the dashboard that tests check.
type rendered struct {
	UID    string
	Panels []struct {
		ID         int
		Title      string
		GridPos    gridPos
		Datasource *struct{ UID string }
		Targets    []struct {
			Datasource struct{ UID string }
			Expr       string
		}
	}
	Templating struct{ List []struct{ Name, Type string } }
}

// TestDashboard checks the rules of Grafana that its import does not forgive.
func TestDashboard(t *testing.T) {
	text, err := dashboard.Render(dashboard.Rows())
	expect.NoError(t, err)
	wantFile(t, dashboardFile, text)
	var d rendered
	expect.NoError(t, json.Unmarshal(text, &d))
	if d.UID == "" || len(d.UID) > 40 {
		t.Errorf("the uid %q has %d characters", d.UID, len(d.UID))
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name+" "+v.Type)
	}
	expect.Equal(t, names, []string{"datasource datasource", "cluster query"})
	ids, used := map[int]bool{}, map[[2]int]string{}
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

// metricName matches the metrics of the program.
var metricName = regexp.MustCompile(`watershed_[a-z_]+`)

// TestExpressions_useDefinedMetrics checks both directions: no expression has a metric that
// does not exist, and every metric is in the dashboard or in an alert.
func TestExpressions_useDefinedMetrics(t *testing.T) {
	var text strings.Builder
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				text.WriteString(q.Expr + "\n")
			}
		}
	}
	for _, a := range dashboard.Alerts() {
		text.WriteString(a.Expr() + "\n")
	}
	used := map[string]bool{}
	for _, name := range metricName.FindAllString(text.String(), -1) {
		used[strings.TrimSuffix(name, "_bucket")] = true
	}
	defined := map[string]bool{}
	for _, d := range exposition.Definitions() {
		defined[d.Name] = true
		if !used[d.Name] {
			t.Errorf("%s is in no panel and no alert", d.Name)
		}
	}
	for name := range used {
		if !defined[name] {
			t.Errorf("an expression has %s, which is not defined", name)
		}
	}
}

// TestAlerts checks that each alert has its section in the runbook and its unit test.
func TestAlerts(t *testing.T) {
	alerts := dashboard.Alerts()
	wantFile(t, alertFile, dashboard.RenderAlerts(alerts))
	runbook, err := os.ReadFile(filepath.Join(root, runbookFile))
	expect.NoError(t, err)
	tests, err := os.ReadFile(filepath.Join(root, ruleTestFile))
	expect.NoError(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(runbook), "\n## ")[1:] {
		title, content, _ := strings.Cut(section, "\n")
		sections[title] = content
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Name)
		section, ok := sections[a.Name]
		if !ok {
			t.Errorf("the runbook has no section %s", a.Name)
		}
		for _, part := range []string{"**Meaning.**", "**Look at.**", "**Do.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("the section %s of the runbook has no %s", a.Name, part)
			}
		}
		if !strings.Contains(string(tests), "name: "+a.Name+" fires\n") {
			t.Errorf("%s has no unit test in %s", a.Name, ruleTestFile)
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Watershed") && !slices.Contains(names, title) {
			t.Errorf("the runbook has a section %s, which is not an alert", title)
		}
	}
}

// causes matches the causes and reasons that an alert is about.
var causes = regexp.MustCompile(`(?:cause|reason)=~?"([^"]*)"`)

// TestReasons_raiseAnAlert checks that each reason in the table of status.md raises an alert of its
// own, except for those of which the page says otherwise.
func TestReasons_raiseAnAlert(t *testing.T) {
	alerted := map[string]bool{"NotStored": true}
	for _, a := range dashboard.Alerts() {
		for _, match := range causes.FindAllStringSubmatch(a.Expr(), -1) {
			for _, reason := range strings.Split(match[1], "|") {
				alerted[reason] = true
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, statusFile))
	expect.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "| reason | meaning | outputs |\n|---|---|---|\n")
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
