// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import "syscall"

// childAttr makes a program die with the thread that started it, so that no program
// outlives a test that panics or is killed.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
