// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net"
	"syscall"
)

// maxUnsent is how many bytes of a connection the kernel takes before it has sent
// them. Without a limit that is megabytes on loopback, and a write waits until a third
// of them has gone: a client that reads slowly would seem not to read at all. What is
// sent and not acknowledged is not limited, so fast clients stay fast.
const maxUnsent = 128 << 10

// ListenConfig listens for a [Server]: its connections report the progress of slow clients
// while they make it. Elsewhere than on Linux it is that of the standard library.
func ListenConfig() *net.ListenConfig {
	config := &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Without the option slow clients are cut off earlier, which is not worth an error.
		return c.Control(func(fd uintptr) { _ = limitUnsent(fd, maxUnsent) })
	}}
	config.SetMultipathTCP(false) // such a socket does not hand the option on
	return config
}
