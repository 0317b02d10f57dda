// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package budget

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// containerShare is the part of a container's memory that the process uses: its pages of
// files and the memory of the kernel count too.
const containerShare = 0.9

// Limit returns the memory limit of the process in bytes, and where it is from: the flag if it
// is not 0, else GOMEMLIMIT, else nine tenths of the memory of the container. It returns 0 if
// there is none.
func Limit(flag int64) (limit int64, from string) {
	if flag > 0 {
		return flag, "--memory-limit"
	}
	if set := debug.SetMemoryLimit(-1); set < math.MaxInt64 {
		return set, "GOMEMLIMIT"
	}
	if container := containerLimit("/sys/fs/cgroup"); container > 0 {
		return int64(containerShare * float64(container)), "the memory limit of the container"
	}
	return 0, ""
}

// containerLimit returns the limit of the control group that is mounted at root, as it is in a
// container, 0 if there is none.
func containerLimit(root string) int64 {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		// Without a limit the file has "max", or the largest multiple of the page size.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<60 {
			return n
		}
	}
	return 0
}
