// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import "syscall"

// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall does not have. Connections
// inherit it from the listening socket.
const tcpNotSentLowat = 25

// limitUnsent limits how many bytes a socket buffers before they are sent.
func limitUnsent(fd uintptr, most int) error {
	return syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, most)
}
