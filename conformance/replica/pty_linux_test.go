// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// openPty returns the two ends of a new terminal with a size.
func openPty(rows, columns uint16) (person, program *os.File, err error) {
	person, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var number, unlock int32
	size := [4]uint16{rows, columns}
	for _, call := range []struct {
		request uintptr
		value   unsafe.Pointer
	}{
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)},
		{syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, code := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), call.request, uintptr(call.value)); code != 0 {
			_ = person.Close()
			return nil, nil, code
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		_ = person.Close()
		return nil, nil, err
	}
	return person, program, nil
}
