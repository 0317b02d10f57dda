// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command bench measures Watershed and client-go or kube-apiserver side by side in one
// run. Absolute numbers depend on the machine, ratios much less. The last line of each
// benchmark is for scripts.
//
// Each benchmark has a file with its name, unless it is a test or benchmark of another
// package; what they share is in harness.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

// benchmarks are the names that make bench accepts.
var benchmarks = map[string]func(io.Writer) error{
	"churn":        benchChurn,
	"disk":         benchDisk,
	"fleet":        benchFleet,
	"fleetrestart": benchFleetrestart,
	"heap":         benchHeap,
	"history":      benchHistory,
	"list":         benchList,
	"operators":    benchOperators,
	"overhead":     benchOverhead,
	"relist":       benchRelist,
	"restart":      benchRestart,
	"secrets":      benchSecrets,
	"sync":         benchSync,
	"verify":       benchVerify,
	"watch":        benchWatch,
}

// goTests are the benchmarks that go test runs. The packages that auth and scrape measure
// can only be imported in the module of the program.
var goTests = map[string]goTest{
	"auth":     {pkg: "/cmd/watershed/internal/access", name: "TestOverhead", lines: "auth|local|1000"},
	"fanout":   {pkg: "/fanout", name: "BenchmarkFanout"},
	"handlers": {pkg: "/conformance/bench", name: "BenchmarkHandlers"},
	"scrape":   {pkg: "/cmd/watershed/internal/exposition", name: "TestScrape", lines: "scrape "},
	"store":    {pkg: "/conformance/bench", name: "BenchmarkStore"},
}

// roles are what the processes do that benchmarks start.
var roles = map[string]harness.Role{
	churnTrial.Name:        churnTrial.Role,
	diskTrial.Name:         diskTrial.Role,
	fleetTrial.Name:        fleetTrial.Role,
	fleetrestartTrial.Name: fleetrestartTrial.Role,
	heapTrial.Name:         heapTrial.Role,
	historyTrial.Name:      historyTrial.Role,
	relistTrial.Name:       relistTrial.Role,
	restartTrial.Name:      restartTrial.Role,
	syncTrial.Name:         syncTrial.Role,
	operatorRole:           runOperator,
	informerRole:           serveInformer,
	harness.BareRole:       harness.ServeBare,
	harness.SimulationRole: harness.ServeSimulation,
	harness.WatchersRole:   harness.ServeWatchers,
}

func main() {
	if done, err := harness.RunAsChild(roles, os.Stdout); done {
		exit(err)
	}
	for name, t := range goTests {
		benchmarks[name] = t.benchmark(name)
	}
	if len(os.Args) != 2 || benchmarks[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: bench %s\n", strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|"))
		os.Exit(2)
	}
	fmt.Fprintf(os.Stdout, "%s, %s/%s, %d processors, %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
	exit(benchmarks[os.Args[1]](os.Stdout))
}

// exit ends the process, with an error if there is one.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", strings.Join(os.Args[1:], " "), err)
		os.Exit(1)
	}
	os.Exit(0)
}
