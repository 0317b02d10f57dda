// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import "syscall"

// childAttr ties a child to the life of its starter: when the thread that
// started it ends, the kernel kills it, so no component outlives a test that
// panics or is killed. A group of its own keeps a terminal's Ctrl-C away from
// it, so that who started it decides when it stops.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
