//go:build !linux

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package examples_test

import "syscall"

// childAttr is nothing special where there is no parent death signal.
func childAttr() *syscall.SysProcAttr { return nil }
