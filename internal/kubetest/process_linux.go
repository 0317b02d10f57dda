// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import "syscall"

// childAttr ties a child to the life of the thread that started it: when that thread
// ends, the kernel kills the child, so no component outlives a test that panics or is
// killed. A process group of its own protects the child from a terminal's Ctrl-C, so that
// the process that started it decides when it stops.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
