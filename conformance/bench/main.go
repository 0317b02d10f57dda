// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command bench measures Watershed and client-go or kube-apiserver side by side in one
// run. Absolute numbers depend on the machine, ratios much less. The last line of each
// benchmark is for scripts.
//
// Each benchmark has a file with its name; what they share is in harness.
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
)

// benchmarks are the names that make bench accepts.
var benchmarks = map[string]func(io.Writer) error{
	"auth":         benchAuth,
	"churn":        benchChurn,
	"disk":         benchDisk,
	"fanout":       benchFanout,
	"fleet":        benchFleet,
	"fleetrestart": benchFleetrestart,
	"handlers":     benchHandlers,
	"heap":         benchHeap,
	"history":      benchHistory,
	"list":         benchList,
	"operators":    benchOperators,
	"overhead":     benchOverhead,
	"relist":       benchRelist,
	"restart":      benchRestart,
	"scrape":       benchScrape,
	"secrets":      benchSecrets,
	"store":        benchStore,
	"sync":         benchSync,
	"verify":       benchVerify,
	"watch":        benchWatch,
}

func main() {
	if len(os.Args) != 2 || benchmarks[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: bench %s\n", strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|"))
		os.Exit(2)
	}
	fmt.Fprintf(os.Stdout, "%s, %s/%s, %d processors, %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
	if err := benchmarks[os.Args[1]](os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
