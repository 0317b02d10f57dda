// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
