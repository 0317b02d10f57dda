// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings_test

import (
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestServeOptions_limits checks that the flags for the limits of one cluster are used, that
// the fleet has its defaults without them, and that negative values are refused.
func TestServeOptions_limits(t *testing.T) {
	for flags, want := range map[[2]string]fleet.Limits{
		{"0", "0"}: {},
		{"7", "2"}: {Objects: 7, Bytes: 2 << 20},
	} {
		o, err := commandtest.ParseOptions("--max-cluster-objects", flags[0], "--max-cluster-memory", flags[1])
		expect.NoError(t, err)
		if got := o.FleetOptions(nil).Limits; got != want {
			t.Errorf("%v: %+v, want %+v", flags, got, want)
		}
	}
	_, err := commandtest.ParseOptions("--max-cluster-objects", "-1", "--max-cluster-memory", "-2")
	for _, want := range []string{"--max-cluster-objects -1: the least value is 0",
		"--max-cluster-memory -2: the least value is 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}
