//go:build !linux

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import "syscall"

// childAttr returns nil here: only an ordinary end cleans up.
func childAttr() *syscall.SysProcAttr { return nil }
