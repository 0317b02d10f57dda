// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package kubetest

import "syscall"

// childAttr sets nothing: without a parent death signal a child outlives a killed parent.
// Close covers ordinary ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}
