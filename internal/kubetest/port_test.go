// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"net"
	"runtime"
	"testing"
)

// TestReservePorts checks the property that a killed API server relies on: its port is
// not assigned to others, and it can use it again.
func TestReservePorts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports cannot be reserved on " + runtime.GOOS)
	}
	const n = 200
	ports, err := reservePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	defer releasePorts(ports)
	reserved := map[int]bool{}
	for _, p := range ports {
		reserved[p.number] = true
	}
	if len(reserved) != n {
		t.Fatalf("%d different ports, want %d", len(reserved), n)
	}
	for range 2 {
		l, err := net.Listen("tcp4", ports[0].addr())
		if err != nil {
			t.Fatalf("listen on a reserved port: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for range 500 {
		conn, err := net.Dial("tcp4", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.LocalAddr().(*net.TCPAddr).Port; reserved[got] {
			t.Fatalf("port %d was reserved and used for an outgoing connection", got)
		}
		accepted, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
	for range 2000 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		got := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if reserved[got] {
			t.Fatalf("port %d was reserved and given away", got)
		}
	}
}
