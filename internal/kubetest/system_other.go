// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package kubetest

import (
	"fmt"
	"net"
	"syscall"
)

// childAttr sets nothing: without a parent death signal a child outlives a killed parent.
// Close covers ordinary ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{}
}

// reservePort returns a port that is free now. Nothing keeps it free.
func reservePort() (*port, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	number := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return &port{number: number, release: func() {}}, nil
}

// Vanish returns an error that is [syscall.EPERM]: only Linux can close a connection without
// a packet.
func Vanish(conn *net.TCPConn) error {
	return fmt.Errorf("vanish from %s: %w", conn.RemoteAddr(), syscall.EPERM)
}
