// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import "syscall"

// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall does not have. Connections have
// it from the socket that accepts them.
const tcpNotSentLowat = 25

// limitUnsent sets how many bytes a socket takes before they are sent.
func limitUnsent(fd uintptr, most int) error {
	return syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, most)
}
