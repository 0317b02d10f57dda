// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package kubetest

import (
	"fmt"
	"net"
	"syscall"
)

// Vanish returns an error that is [syscall.EPERM]: only Linux can close a connection without
// a packet.
func Vanish(conn *net.TCPConn) error {
	return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), syscall.EPERM)
}
