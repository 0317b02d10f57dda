// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command bench measures Watershed beside what it is meant to better, both in
// the same run: the machine is never the same, the ratio nearly is. The last
// line of each benchmark is made for scripts.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

var benchmarks = map[string]func(io.Writer) error{
	"churn":    benchChurn,
	"fanout":   benchFanout,
	"fleet":    benchFleet,
	"handlers": benchHandlers,
	"heap":     benchHeap,
	"list":     benchList,
	"relist":   benchRelist,
	"secrets":  benchSecrets,
	"store":    benchStore,
	"sync":     benchSync,
	"tree":     benchTrees,
	"watch":    benchWatch,
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

// cpuTime is what the process has used of its processors. It counts the garbage
// collector's work, wherever that runs, and not the time that other processes
// took from this one.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxRSS is the most memory the process has had, in bytes.
func maxRSS() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10 // Linux counts kilobytes
}

// cost is the CPU time of one of n operations that f does.
func cost(n int, f func()) time.Duration {
	start := cpuTime()
	f()
	return (cpuTime() - start) / time.Duration(n)
}

// rivals measures two costs in turns and returns the mean of each, so that both
// pay for the garbage they make and share the machine's moods.
func rivals(rounds int, ours, theirs func() time.Duration) (o, t time.Duration) {
	runtime.GC()
	for range rounds {
		o += ours()
		t += theirs()
	}
	return o / time.Duration(rounds), t / time.Duration(rounds)
}

// ratio says how many times smaller ours is.
func ratio(ours, theirs time.Duration) string {
	return fmt.Sprintf("%.2f", float64(theirs)/float64(max(ours, 1)))
}
