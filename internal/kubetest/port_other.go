// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package kubetest

import (
	"fmt"
	"net"
)

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
