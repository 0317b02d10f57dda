// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"fmt"
	"net"
	"syscall"
)

// tcpRepair is a socket option: a socket in this mode is closed without a packet.
const tcpRepair = 19

// Vanish closes a connection without a packet to the other end, as if this machine had lost
// its power. It needs CAP_NET_ADMIN, and returns an error that is [syscall.EPERM] without it.
func Vanish(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1) }); err != nil {
		return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), err)
	}
	if failed != nil {
		return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), failed)
	}
	return conn.Close()
}
