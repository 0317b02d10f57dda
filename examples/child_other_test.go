//go:build !linux

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import "syscall"

// childAttr returns nil on systems without a parent death signal.
func childAttr() *syscall.SysProcAttr { return nil }
