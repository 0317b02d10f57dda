// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package program

import "syscall"

// ChildAttr ends a child with the thread that started it, so that none outlives a
// test that panics.
func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
