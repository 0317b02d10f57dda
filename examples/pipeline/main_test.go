// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSteps_areInTheTour(t *testing.T) {
	tour, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range steps {
		if !strings.Contains(string(tour), "\n$ go run ./examples/pipeline "+name) {
			t.Errorf("README.md does not say how to run the step %s", name)
		}
	}
}

// The second list has shop/web again. That is an update, because plain structs have no
// version by which to recognize an unchanged object.
const want = `# handler of everything
OnAdd: shop/web Running
OnAdd: shop/db Running
OnAdd: default/nettool Pending
OnUpdate: default/nettool Pending to Running
OnDelete: default/nettool seen: true
OnUpdate: shop/web Running to Running
OnDelete: shop/db seen: false
# handler of shop
OnAdd: shop/web Running
OnAdd: shop/db Running
OnUpdate: shop/web Running to Running
OnDelete: shop/db seen: false
# what is there now
Running: shop/web
`

func TestRunPlayed(t *testing.T) {
	for range 100 { // the stages run concurrently; the output is the same
		var out strings.Builder
		if err := runPlayed(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Fatalf("output (-want +got):\n%s", diff)
		}
	}
	programtest.Shown(t, "go run ./examples/pipeline", want)
}

func TestRunReflector_withoutCluster(t *testing.T) {
	programtest.Retries(t, "", func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runReflector(ctx, out, cluster, reflectorOptions{namespace: "default", known: true})
	})
}

func TestRunLive_withoutCluster(t *testing.T) {
	programtest.Retries(t, "", func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runLive(ctx, out, cluster, options{namespace: "default", listen: "127.0.0.1:0"})
	})
}
