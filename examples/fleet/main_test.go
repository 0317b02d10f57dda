// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun_clustersComeAndGo changes an object, and then removes a cluster from the
// kubeconfig and puts it back. The lines must come in this order.
func TestRun_clustersComeAndGo(t *testing.T) {
	one := kubetest.Start(t, &kubetest.Options{Name: "cluster-1"})
	two := kubetest.Start(t, &kubetest.Options{Name: "cluster-2"})
	kubectl := func(c *kubetest.Cluster, args ...string) {
		t.Helper()
		_, err := c.Kubectl(t.Context(), args...)
		expect.NoError(t, err)
	}
	for _, c := range []*kubetest.Cluster{one, two} {
		kubectl(c, "create", "configmap", "web")
		kubectl(c, "label", "configmap", "web", "app=web")
		kubectl(c, "create", "configmap", "other")
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, kubetest.WriteKubeconfig(kubeconfig, one, two))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out expect.Output
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, &out, options{
			kubeconfig: kubeconfig, resource: "configmaps", selector: "app=web", watch: true, patience: time.Minute,
		})
	}()
	await := func(text string) {
		t.Helper()
		expect.Soon(t, text, func() bool { return strings.HasSuffix(lines(&out), text+"\n") })
	}
	await("# watch")
	kubectl(one, "label", "configmap", "web", "b=2")
	await("Updated cluster-1/default/web V")
	expect.NoError(t, kubetest.WriteKubeconfig(kubeconfig, one))
	await("Deleted cluster-2/default/web V")
	expect.NoError(t, kubetest.WriteKubeconfig(kubeconfig, one, two))
	await("Added cluster-2/default/web V")
	kubectl(two, "delete", "configmap", "other")
	kubectl(two, "delete", "configmap", "web")
	await("Deleted cluster-2/default/web V")
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expect.Equal(t, lines(&out), `CLUSTER STATE RESOURCES OBJECTS REASON
cluster-1 live 3/3 N/N
cluster-2 live 3/3 N/N

CLUSTER OBJECT VERSION
cluster-1 default/web V
cluster-2 default/web V

# watch
Updated cluster-1/default/web V
Deleted cluster-2/default/web V
Added cluster-2/default/web V
Deleted cluster-2/default/web V
`)
}

var (
	objects = regexp.MustCompile(`(?m) \d+/\d+$`)
	version = regexp.MustCompile(`(?m)/web \d+$`)
)

// lines returns the output with one space between columns, and without the numbers that
// differ from run to run.
func lines(out *expect.Output) string {
	var all strings.Builder
	for line := range strings.Lines(out.String()) {
		all.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return version.ReplaceAllString(objects.ReplaceAllString(all.String(), " N/N"), "/web V")
}
