// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"net"
	"syscall"
)

// maxUnsent limits how many unsent bytes of a connection the kernel buffers. Without a
// limit, the kernel buffers megabytes on loopback, and a write waits until a third of
// them has been sent. A client that reads slowly would then look like a client that does
// not read at all. The limit does not include bytes that are sent and not acknowledged
// yet, so it does not slow down fast clients.
const maxUnsent = 128 << 10

// ListenConfig returns a configuration for the listener of a server. On connections of
// that listener, writes progress as a slow client reads, not in large steps. On systems
// other than Linux the configuration is equivalent to the zero value.
func ListenConfig() *net.ListenConfig {
	config := &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// If the option cannot be set, slow clients are only cut off earlier, so the
		// error is ignored.
		return c.Control(func(fd uintptr) { _ = limitUnsent(fd, maxUnsent) })
	}}
	config.SetMultipathTCP(false) // connections of a multipath socket do not inherit the option
	return config
}
