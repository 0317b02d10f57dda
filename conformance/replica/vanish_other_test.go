// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package replica_test

import (
	"net"
	"syscall"
)

// vanish is not possible here.
func vanish(*net.TCPConn) error { return syscall.EPERM }
