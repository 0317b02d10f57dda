// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"os"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/program"
)

// patience is the timeout for conditions that normally take seconds, on a machine that is busy with
// other tests.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	code := m.Run()
	program.Remove()
	os.Exit(code)
}
