// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// IsLoopback reports whether a listener can be reached from this machine only.
func IsLoopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// IsLoopbackHost reports whether only this machine can connect to a host: to localhost or to a
// loopback address.
func IsLoopbackHost(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Hosts returns the names and addresses at which clients reach a listener: those that its
// operator has named, and its own address. If it listens on all addresses and none was
// named, they are the name of this machine and the addresses of its network interfaces.
func Hosts(l net.Listener, named []string) ([]string, error) {
	tcp, ok := l.Addr().(*net.TCPAddr)
	switch {
	case !ok || tcp.IP.IsUnspecified() && len(named) > 0:
		return named, nil
	case !tcp.IP.IsUnspecified():
		return append([]string{tcp.IP.String()}, named...), nil
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("hosts of the server: %w", err)
	}
	hosts := []string{name}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("hosts of the server: %w", err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && (network.IP.IsGlobalUnicast() || network.IP.IsLoopback()) {
			hosts = append(hosts, network.IP.String())
		}
	}
	return hosts, nil
}

// Addresses returns hosts with the port of a listener. The first is the one to connect to.
func Addresses(l net.Listener, hosts []string) []string {
	var addresses []string
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		for _, host := range hosts {
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(tcp.Port)))
		}
	}
	return addresses
}
