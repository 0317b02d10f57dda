// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"encoding/json"
	"errors"
	"os"
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
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	const read, imports = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "import (\n"
	if strings.Count(string(text), read) != 1 || strings.Count(string(text), imports) != 1 {
		return "", errors.New(source + ": time.Now does not read the clock as this test expects")
	}
	dir, err := os.MkdirTemp("", "watershed-clock-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	changed := strings.NewReplacer(read, read+"\tsec += shift()\n", imports, imports+"\t\"sync\"\n\t\"syscall\"\n").
		Replace(string(text)) + `
var shift = sync.OnceValue(func() (seconds int64) {
	text, _ := syscall.Getenv("` + clockVariable + `")
	n, _ := atoi(text)
	return int64(n)
})
`
	replaced := filepath.Join(dir, "time.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: replaced}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(replaced, []byte(changed), 0o600), os.WriteFile(file, overlay, 0o600)); err != nil {
		return "", err
	}
	return program.Build("shifted", "-overlay", file)
})
