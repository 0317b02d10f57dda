// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"net"
	"strconv"
)

// port is a TCP port on loopback that is reserved for one user until it is released, even
// while nothing listens on it: a killed API server finds its port free again. How it is
// reserved depends on the system. Where it cannot be, processes are started again with
// other ports (see [New]).
type port struct {
	number  int
	release func()
}

func (p *port) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number))
}

func releasePorts(ports []*port) {
	for _, p := range ports {
		p.release()
	}
}
