// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// ClockTick is the unit in which Linux counts the processor time of other
	// processes.
	ClockTick = time.Second / 100
	// memoryInterval is how often PeakMemory reads the RSS.
	memoryInterval = 50 * time.Millisecond
)

// Process is another process, measured through /proc.
type Process struct {
	// Name is for errors and reports.
	Name string
	PID  int
}

// CPU returns the processor time that the process has used.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	// The command's name ends at the last bracket and may contain anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: /proc/%d/stat is short", p.Name, p.PID)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * ClockTick, errors.Join(err, err2)
}

// IdleCPU returns how many processors the process uses on average during d.
func (p *Process) IdleCPU(d time.Duration) (float64, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(d)
	after, err := p.CPU()
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}

// Memory returns the current RSS in bytes.
func (p *Process) Memory() (uint64, error) {
	text := strings.TrimSuffix(procValue(fmt.Sprintf("/proc/%d/status", p.PID), "VmRSS"), " kB")
	kilobytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.Name, err)
	}
	return kilobytes << 10, nil
}

// SettledMemory waits until the RSS has stopped shrinking and returns it.
func (p *Process) SettledMemory() (uint64, error) {
	now, err := p.Memory()
	began := time.Now()
	lowest, since := now, began
	for err == nil && time.Since(began) < settleLimit && time.Since(since) < settleWindow {
		time.Sleep(time.Second)
		now, err = p.Memory()
		if now < lowest-lowest/100 {
			lowest, since = now, time.Now()
		}
	}
	return now, err
}

// PeakMemory runs f and returns the largest RSS during that time.
func (p *Process) PeakMemory(f func() error) (uint64, error) {
	done := make(chan error)
	go func() { done <- f() }()
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	var peak uint64
	for {
		now, err := p.Memory()
		peak = max(peak, now)
		select {
		case failed := <-done:
			return peak, errors.Join(failed, err)
		case <-tick.C:
		}
	}
}

// procValue returns the value of the first "name: value" line of a file in /proc, or
// "" if there is none.
func procValue(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// SinceExec returns how long ago this process was executed, to 10 ms.
func SinceExec() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	// The name of the program is in parentheses and may have spaces. The start is field 22.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks, err := strconv.ParseInt(fields[22-3], 10, 64)
	if err != nil {
		return 0, err
	}
	now, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(now*float64(time.Second)) - time.Duration(ticks)*(time.Second/100), nil
}

// CPUTime returns the processor time that this process has used. It includes the
// garbage collector, on whichever thread that runs, and excludes the time that
// other processes took from this one.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// MaxRSS returns the largest RSS of this process so far, in bytes.
func MaxRSS() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10 // Linux counts kilobytes
}

// RSS returns the current RSS of this process in bytes, or 0 if /proc does not
// have it.
func RSS() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

const (
	// settleWindow is how long memory must not have shrunk by a hundredth to count
	// as settled.
	settleWindow = 15 * time.Second
	// settleLimit is how long to wait for memory to settle.
	settleLimit = 150 * time.Second
	// RepackTime is when at the earliest a packed informer has packed again, and more
	// densely, what has not changed since it arrived.
	RepackTime = 80 * time.Second
)

// Footprint is the memory of this process.
type Footprint struct {
	// Heap is the live heap in bytes, after a garbage collection.
	Heap int64
	// Objects is how many heap objects there are.
	Objects int64
	// RSS is the current RSS in bytes.
	RSS uint64
	// MaxRSS is the largest RSS so far, in bytes.
	MaxRSS uint64
}

// MeasureFootprint collects garbage and returns the footprint. It collects twice,
// because weakly referenced objects and those with a finalizer are freed by the
// second collection.
func MeasureFootprint() Footprint {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Footprint{Heap: int64(m.HeapAlloc), Objects: int64(m.HeapObjects), RSS: RSS(), MaxRSS: MaxRSS()}
}

// Since returns f with its heap reduced by an earlier one. RSS and MaxRSS stay
// those of the whole process.
func (f Footprint) Since(before Footprint) Footprint {
	f.Heap -= before.Heap
	f.Objects -= before.Objects
	return f
}

// Settle waits at least for the given time and then until the heap has stopped
// shrinking, and returns the footprint.
func Settle(least time.Duration) Footprint {
	began := time.Now()
	now := MeasureFootprint()
	lowest, since := now.Heap, began
	for time.Since(began) < settleLimit && (time.Since(began) < least || time.Since(since) < settleWindow) {
		time.Sleep(3 * time.Second)
		now = MeasureFootprint()
		if now.Heap < lowest-lowest/100 {
			lowest, since = now.Heap, time.Now()
		}
	}
	return now
}

// LiveHeap collects garbage and returns the number of bytes found in use.
func LiveHeap() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
