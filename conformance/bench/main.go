// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command bench measures Watershed and client-go or kube-apiserver side by side in one
// run. Absolute numbers depend on the machine, ratios much less. The last line of each
// benchmark is for scripts.
//
// Each benchmark has a file or package with its name, unless it is a test or a benchmark of
// go test; what they share is in harness.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/conformance/bench/history"
	"github.com/watershed-project/watershed/conformance/bench/operators"
	"github.com/watershed-project/watershed/conformance/bench/replicas"
)

// benchmarks are the names that make bench accepts.
var benchmarks = map[string]func(io.Writer) error{
	"churn":        benchChurn,
	"disk":         benchDisk,
	"fleet":        benchFleet,
	"fleetrestart": benchFleetrestart,
	"heap":         benchHeap,
	"history":      history.Bench,
	"list":         benchList,
	"operators":    operators.Bench,
	"overhead":     benchOverhead,
	"relist":       benchRelist,
	"replicas":     replicas.Bench,
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
	history.Trial.Name:     history.Trial.Role,
	relistTrial.Name:       relistTrial.Role,
	restartTrial.Name:      restartTrial.Role,
	syncTrial.Name:         syncTrial.Role,
	operators.RoleName:     operators.Role,
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

// modulePath is the path of the module that is measured.
const modulePath = "github.com/watershed-project/watershed"

// goTest is a benchmark that runs a test or a benchmark of a package.
type goTest struct {
	pkg, name string
	// lines matches the beginnings of the lines of its output that are results.
	lines string
}

// benchmark returns the function of the benchmark with that name.
func (t goTest) benchmark(name string) func(io.Writer) error {
	// A benchmark repeats its measurements itself, so go test runs it once.
	args := []string{"test", modulePath + t.pkg, "-vet=off", "-count=1", "-timeout=60m", "-v", "-run=^" + t.name + "$"}
	if t.lines == "" {
		args = append(args[:5], "-run=^$", "-bench=^"+t.name+"$", "-benchtime=1x")
		t.lines = t.name + "|" + name + ":"
	}
	results := regexp.MustCompile("(?m)^(" + t.lines + ").*\n")
	return func(out io.Writer) error {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "WATERSHED_KUBE=required", "WATERSHED_BENCH="+name)
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", t.name, err, text)
		}
		for _, line := range results.FindAll(text, -1) {
			fmt.Fprintf(out, "%s", line)
		}
		return nil
	}
}
