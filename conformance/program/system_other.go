//go:build !linux

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package program

import "syscall"

// ChildAttr returns nil here: only an ordinary end cleans up.
func ChildAttr() *syscall.SysProcAttr { return nil }
