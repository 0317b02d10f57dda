// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

func TestFailover_isReadFromTheOutput(t *testing.T) {
	var f failover
	const result = "requests=10 retried=2 failed-after-retry=1 request-ms-p99=70 silence-ms-max=900 relists-busy=3 " +
		"relists-idle=4 versions-expired=0 other-errors=0"
	err := f.read("    failover_test.go:130: kills 1: replica 0, " + strings.ReplaceAll(result, "70", "1") +
		"\n    failover_test.go:135: failover: 2 kills, 100 watches, files=false: " + result +
		"\n    failover_test.go:135: failover: 0 restarts in order, 100 watches, files=false: requests=99\n")
	want := failover{p99: 70, silence: 900, relists: 7, requests: 10, retried: 2, failed: 1}
	if err != nil || f != want {
		t.Errorf("%+v, %v, want %+v", f, err, want)
	}
	if err := f.read("failover: 2 kills, 100 watches: requests=10\n"); err == nil {
		t.Error("a result without silence is accepted")
	}
}

func TestCost_comparesThePeriods(t *testing.T) {
	c := cost{
		writes: [2]harness.Latencies{
			{2 * time.Millisecond, time.Millisecond, 9 * time.Millisecond},
			{3500 * time.Microsecond, time.Millisecond, 4 * time.Millisecond},
		},
		cpu:    [2][]float64{{0.1, 0.2, 0.4}, {0.11, 0.2, 0.8}},
		memory: [2][]float64{{50, 60, 70}, {51, 63, 65}},
	}
	if got := c.writeAdded(); got != 1.5 {
		t.Errorf("a write takes %v ms more, want 1.5", got)
	}
	if all, least, most := c.cpuAdded(); percent(all) != "58.6%" || least != 0 || percent(most) != "100.0%" {
		t.Errorf("CPU grows by %s, %v to %v, want 58.6%%, 0 to 1", percent(all), least, most)
	}
	c.cpu, c.rest = [2][]float64{{0.1, 0.2}, {0.12, 0.2}}, [2]float64{0.002, 0.004}
	if got := c.noteCPU().Round(time.Microsecond); got != 8*time.Millisecond/costWrites {
		t.Errorf("a note takes %s", got)
	}
	if got := c.memoryAdded(); got != 1 {
		t.Errorf("memory grows by %v, want 1", got)
	}
}

func TestCountLeases_countsTheRequestsOfAGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const leases = `"requestURI":"/apis/coordination.k8s.io/v1/namespaces/default/leases`
	if err := os.WriteFile(path, []byte(`{"verb":"update",`+leases+`/load-1-2-7","objectRef":{"name":"load-1-2-7"}}
{"verb":"list",`+leases+`?labelSelector=watershed.dev%2Freplica-group%3Dload-1-2","objectRef":{"name":""}}
{"verb":"update",`+leases+`/load-1-20-7","objectRef":{"name":"load-1-20-7"}}
{"verb":"list",`+leases+`?labelSelector=watershed.dev%2Freplica-group%3Dload-1-20","objectRef":{"name":""}}
{"verb":"upd`), 0o600); err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]int64{"load-1-2": 2, "load-1-20": 2, "load-2-1": 0} {
		if n, err := countLeases(path, group); n != want || err != nil {
			t.Errorf("group %s has %d requests, want %d; %v", group, n, want, err)
		}
	}
}
