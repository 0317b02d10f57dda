// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/watershed-project/watershed/conformance/program"
)

const (
	// clockVariable is the environment variable that sets a clock ahead, in seconds.
	clockVariable = "WATERSHED_TEST_CLOCK"
	// mostShift is the most that a clock is set ahead or back, in seconds. It is a little less than the hour
	// for which certificates of a cluster under test are valid before they were made.
	mostShift = 55 * 60
)

// clockBinary builds the program with a package time of Go's whose wall clock is ahead by clockVariable.
// The monotonic clock is not changed. No other part of the program differs.
var clockBinary = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	return program.BuildChanged("shifted", filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"),
		"import (\n", "import (\n\t\"sync\"\n\t\"syscall\"\n",
		now, "var shift = sync.OnceValue(func() int64 {\n"+
			"\ttext, _ := syscall.Getenv(\""+clockVariable+"\")\n\tn, _ := atoi(text)\n\treturn int64(n)\n})\n\n"+
			now+"\tsec += shift()\n")
})
