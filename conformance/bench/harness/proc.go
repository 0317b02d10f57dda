// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

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
