// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// prometheusVariable is the name of the environment variable that makes a missing Prometheus
// an error.
const prometheusVariable = "WATERSHED_PROMETHEUS"

// lookPath returns the path of a program of Debian's package prometheus.
func lookPath(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv(prometheusVariable) == "required" {
			t.Fatal(err)
		}
		t.Skipf("%s is not installed: install the package prometheus", program)
	}
	return path
}

// TestAlertRules runs promtool on the alert rules and on their unit tests.
func TestAlertRules(t *testing.T) {
	promtool := lookPath(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "watershed.yaml"}, {"test", "rules", "watershed_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(checkout, filepath.Dir(alertFile))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct{ url string }

// staleFor matches the end of a rule that waits until a copy has been stale for minutes.
var staleFor = regexp.MustCompile(`(?m) > (180|600)$`)

// startPrometheus runs a Prometheus that scrapes an address every second and evaluates the
// alert rules, those about stale copies without their wait.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	program := lookPath(t, "prometheus")
	text := readCheckout(t, alertFile)
	dir, address := t.TempDir(), freeAddress(t)
	rules := filepath.Join(dir, "rules.yaml")
	expect.NoError(t, os.WriteFile(rules, staleFor.ReplaceAll(text, []byte(" > 0")), 0o600))
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: watershed
  static_configs: [{targets: [%q]}]
`, rules, target)
	file := filepath.Join(dir, "prometheus.yml")
	expect.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	var log expect.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	expect.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus: %s", log.String())
		}
	})
	return &prometheus{"http://" + address}
}

// freeAddress returns a loopback address that no program listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// raises waits until an alert is pending or firing, with these values of labels, in pairs.
func (p *prometheus) raises(t *testing.T, alert string, labels ...string) {
	t.Helper()
	expr := `ALERTS{alertname="` + alert + `"`
	for i := 0; i < len(labels); i += 2 {
		expr += fmt.Sprintf(`,%s=%q`, labels[i], labels[i+1])
	}
	expect.Eventually(t, 30*time.Second, func() error {
		result, err := p.query(t.Context(), expr+"}")
		if err == nil && len(result) == 0 {
			all, _ := p.query(t.Context(), "ALERTS")
			err = fmt.Errorf("%s is not raised; others are: %v", alert, all)
		}
		return err
	})
}

// sample is a series and its value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(expr),
		http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s: %w: %s", expr, err, body)
	}
	return answer.Data.Result, nil
}

// wantSome returns an error unless an expression has a result that is a number.
func (p *prometheus) wantSome(ctx context.Context, what, expr string) error {
	result, err := p.query(ctx, expr)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, s := range result {
		if s.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("%s: %s has %d results and no number", what, expr, len(result))
}

// evaluated returns an expression of the dashboard with its variables replaced.
func evaluated(expr string) string {
	return strings.NewReplacer("$__rate_interval", "20s", "$cluster", ".*").Replace(expr)
}

// TestPrometheus scrapes the program under load, with clusters in several kinds of trouble,
// with a real Prometheus. Every expression of the dashboard and of the alerts must have a
// result, and each trouble must have the signal of its alert.
func TestPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: make dashboards runs it")
	}
	lookPath(t, "prometheus")
	w := newTroubledFleet(t)
	p := startPrometheus(t, w.metrics)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+*picturesFlag)
	defer cancel()
	stop := w.load(ctx)
	defer stop()
	var pending []func() error
	for _, panel := range readDashboard(t).Panels {
		for _, q := range panel.Targets {
			pending = append(pending, func() error { return p.wantSome(ctx, panel.Title, evaluated(q.Expr)) })
		}
	}
	signals := map[string]string{}
	for _, a := range readAlerts(t) {
		signal := a.signal()
		signals[a.Alert] = signal
		// TestTroubles has the problems of clusters, and TestProblems the problems of the server.
		if !strings.Contains(signal, "watershed_problems") && !strings.Contains(signal, "watershed_server_problems") {
			pending = append(pending, func() error { return p.wantSome(ctx, a.Alert, signal) })
		}
	}
	for cluster, alert := range w.troubles {
		if _, ok := signals[alert]; !ok {
			t.Fatalf("%s is not an alert", alert)
		}
		pending = append(pending, func() error {
			result, err := p.query(ctx, "("+signals[alert]+") > 0")
			for _, s := range result {
				if s.Metric["cluster"] == cluster {
					return nil
				}
			}
			return fmt.Errorf("%s has no signal %s: %v %w", cluster, alert, result, err)
		})
	}
	t.Logf("%d expressions", len(pending))
	expect.Eventually(t, 90*time.Second, func() error {
		var errs []error
		pending = slices.DeleteFunc(pending, func(check func() error) bool {
			err := check()
			errs = append(errs, err)
			return err == nil
		})
		time.Sleep(time.Second) // Prometheus evaluates its rules once a second
		return errors.Join(errs...)
	})
	// A cluster that forbids one resource accepts the credentials.
	result, err := p.query(ctx, signals["WatershedCredentialsRefused"])
	expect.NoError(t, err)
	for _, s := range result {
		if s.Metric["cluster"] != "unauthorized" {
			t.Errorf("%s has the signal of refused credentials", s.Metric["cluster"])
		}
	}
	if *picturesFlag > 0 {
		time.Sleep(*picturesFlag) // the time that the pictures show
		drawDashboard(t, p, *picturesFlag)
	}
}
