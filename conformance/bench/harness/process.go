// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
