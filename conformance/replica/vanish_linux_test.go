// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"net"
	"syscall"
)

// tcpRepair is a socket option: a socket in this mode is closed without a packet.
const tcpRepair = 19

// vanish drops a connection without a packet to the other end, as if this machine had lost
// its power. That needs CAP_NET_ADMIN.
func vanish(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return conn.Close()
}
