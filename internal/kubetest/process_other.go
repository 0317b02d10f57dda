// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package kubetest

import "syscall"

// childAttr has nothing to offer here: without a parent death signal a child
// outlives a starter that is killed. Ordinary ends are covered by Close.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}
