// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net"
	"syscall"
)

// maxUnsent limits how many bytes of a connection the kernel buffers before it has sent
// them. Without a limit it buffers megabytes on loopback, and a write waits until a third
// of them has been sent: a client that reads slowly would look like one that does not
// read at all. Bytes that are sent and not acknowledged are not limited, so fast clients
// stay fast.
const maxUnsent = 128 << 10

// ListenConfig returns a configuration for the listener of a [Server]. Its connections
// report the progress of slow clients as it happens. On systems other than Linux it is
// equivalent to the zero value.
func ListenConfig() *net.ListenConfig {
	config := &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Without the option, slow clients are cut off earlier. That is not worth an
		// error.
		return c.Control(func(fd uintptr) { _ = limitUnsent(fd, maxUnsent) })
	}}
	config.SetMultipathTCP(false) // connections of a multipath socket do not inherit the option
	return config
}
