// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// subjectVariable set to "server" compares kube-apiserver with itself.
const subjectVariable = "WATERSHED_SUBJECT"

// patience is the timeout for operations that normally take no time, on a machine that is
// busy with other tests.
const patience = time.Minute

// shared is the cluster that most of the tests share: filling it takes longer than
// most of them.
var shared struct {
	once    sync.Once
	cluster *comparedCluster
	err     error
}

func TestMain(m *testing.M) {
	if text := os.Getenv(loadVariable); text != "" {
		if err := serveLoad(text); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer program.Remove()
	defer func() {
		if shared.cluster != nil {
			shared.cluster.close()
		}
	}()
	return m.Run()
}

// theComparedCluster returns the shared cluster, which is started on first use.
func theComparedCluster(t *testing.T) *comparedCluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		shared.cluster, shared.err = newComparedCluster(ctx, t.Logf)
	})
	if errors.Is(shared.err, kubetest.ErrNotBuilt) && os.Getenv(kubetest.RequiredVariable) != "required" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}
