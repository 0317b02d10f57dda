// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import "syscall"

// childAttr ends a child with the thread that started it, so that none outlives a
// test that panics.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
