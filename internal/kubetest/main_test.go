// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/mod/semver"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// lifeVariable makes the test binary start a cluster, print its process ids and end in
// the way of the value: panic or kill.
const lifeVariable = "KUBETEST_LIFE"

func TestMain(m *testing.M) {
	if life := os.Getenv(lifeVariable); life != "" {
		liveAndDie(life)
	}
	goleak.VerifyTestMain(m)
}

func liveAndDie(how string) {
	c, err := kubetest.New(context.Background(), &kubetest.Options{Dir: os.Getenv("KUBETEST_DIR")})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(3)
	}
	fmt.Fprintln(os.Stdout, "pids", c.Etcd.PID(), c.APIServer.PID())
	if how == "panic" {
		panic("as a test might")
	}
	select {} // until killed
}

// skipUnlessBuilt skips tests that need the binaries but do not use Start.
func skipUnlessBuilt(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if missing := set.Missing(); len(missing) > 0 {
		if os.Getenv(kubetest.RequiredVariable) == "required" {
			t.Fatalf("%v: %s is missing", kubetest.ErrNotBuilt, missing[0])
		}
		t.Skip(kubetest.ErrNotBuilt)
	}
}

// olderThan reports whether the tests run with a Kubernetes before version, which may
// lack features; see binaries.VersionVariable.
func olderThan(t *testing.T, version string) bool {
	t.Helper()
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	return semver.Compare(set.APIServer.Version, version) < 0
}
