// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"fmt"
	"net"
	"sync"
	"syscall"
)

// childAttr ties a child to the life of the thread that started it: when that thread
// ends, the kernel kills the child, so no component outlives a test that panics or is
// killed. A process group of its own protects the child from a terminal's Ctrl-C, so that
// the process that started it decides when it stops.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// reservePort binds a socket to a port that the kernel chooses and never listens on it.
// While it is bound, the kernel does not assign the port to sockets that request any
// port, such as those of other tests, proxies and outgoing connections. A socket that
// requests this very port with SO_REUSEADDR, as every Go server does, gets it, because
// two such sockets conflict only once both listen.
func reservePort() (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	fail := func(err error) (*port, error) {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return fail(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return fail(err)
	}
	in4, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return fail(fmt.Errorf("socket name is a %T", name))
	}
	return &port{
		number:  in4.Port,
		release: sync.OnceFunc(func() { _ = syscall.Close(fd) }),
	}, nil
}

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
	err = raw.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1) })
	if err != nil {
		return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), err)
	}
	if failed != nil {
		return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), failed)
	}
	return conn.Close()
}
