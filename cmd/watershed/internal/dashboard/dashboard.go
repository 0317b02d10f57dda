// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package dashboard makes the Grafana dashboard and the alert rules from Go, so that tests
// can run every expression and find metrics that do not exist. Nothing in the program imports
// it: the files below deploy/ are its output.
//
// # Guarantees
//
// The output is the same for the same code. A test fails if the files differ from it, and
// writes them with -update.
//
// # What blocks
//
// Nothing blocks.
//
// # Bounds and ownership
//
// Nothing is kept.
package dashboard

import (
	"encoding/json"
	"fmt"
)

const (
	// UID identifies the dashboard in Grafana, which allows 40 characters.
	UID = "watershed-fleet"
	// ClusterQuery has the values of the variable cluster.
	ClusterQuery = "label_values(watershed_cluster_state, cluster)"
	// columns is the width of Grafana's grid.
	columns = 24
	// panelHeight is the height of a panel that does not set one.
	panelHeight = 8
)

// Query is an expression of a panel.
type Query struct{ Expr, Legend string }

// Panel is a panel of the dashboard.
type Panel struct {
	Title, Description string
	// Kind is timeseries, stat or table.
	Kind string
	// Unit is Grafana's name of the unit.
	Unit    string
	Width   int
	Queries []Query
}

// Row is a row of panels with a title.
type Row struct {
	Title  string
	Panels []Panel
}

// object is a JSON object. encoding/json sorts its keys.
type object = map[string]any

// source refers to the variable that selects the data source.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// Render returns the dashboard as JSON.
func Render(rows []Row) ([]byte, error) {
	var panels []object
	id, y := 0, 0
	for _, row := range rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": []any{}, "gridPos": object{"x": 0, "y": y, "w": columns, "h": 1}})
		y++
		x := 0
		for _, p := range row.Panels {
			if x+p.Width > columns {
				x, y = 0, y+panelHeight
			}
			id++
			panels = append(panels, p.render(id, x, y))
			x += p.Width
		}
		y += panelHeight
	}
	text, err := json.MarshalIndent(object{
		"uid": UID, "title": "Watershed", "tags": []string{"kubernetes", "watershed"}, "timezone": "browser", "schemaVersion": 39, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"templating": object{"list": variables()}, "annotations": object{"list": []any{}}, "links": []any{}, "panels": panels,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return append(text, '\n'), nil
}

// variables returns the variables of the dashboard: the data source and the clusters.
func variables() []object {
	return []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": object{}, "hide": 0, "refresh": 1},
		{
			"name": "cluster", "label": "Cluster", "type": "query", "datasource": source, "query": object{"query": ClusterQuery, "refId": "cluster"}, "definition": ClusterQuery,
			"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1, "hide": 0,
		},
	}
}

// render returns a panel at a place in the grid.
func (p *Panel) render(id, x, y int) object {
	var targets []object
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend}
		if p.Kind != "timeseries" {
			target["instant"], target["range"] = true, false
		}
		if p.Kind == "table" {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	rendered := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.Description, "datasource": source, "targets": targets,
		"gridPos":     object{"x": x, "y": y, "w": p.Width, "h": panelHeight},
		"fieldConfig": object{"defaults": object{"unit": p.Unit}, "overrides": []any{}},
		"options":     object{},
	}
	switch p.Kind {
	case "timeseries":
		rendered["fieldConfig"] = object{"defaults": object{"unit": p.Unit, "min": 0, "custom": object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}}, "overrides": []any{}}
		rendered["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		rendered["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "none"}
	}
	return rendered
}
