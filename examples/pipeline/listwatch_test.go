// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/kube"
)

func TestRunListWatch_withoutCluster(t *testing.T) {
	programtest.Fails(t, "# list\n", func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runListWatch(ctx, out, cluster, listWatchOptions{namespace: "default", list: true})
	})
}

var bookmark = regexp.MustCompile(`\nBOOKMARK : version (\d+)\n`)

// A bookmark is printed, and a watch that begins at its version has only later changes.
func TestRunListWatch_continuesAtABookmark(t *testing.T) {
	server, err := simulated.New(&simulated.Options{Pods: 2, Namespaces: 1, Bookmarks: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	cluster, err := kube.FromConfig(server.Cluster(0).Config(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.CloseIdleConnections)

	first := watchUntil(t, cluster, listWatchOptions{list: true}, bookmark)
	version := bookmark.FindStringSubmatch(first)[1]
	server.Cluster(0).Touch(0)
	second := watchUntil(t, cluster, listWatchOptions{list: true, from: version}, regexp.MustCompile(`\nMODIFIED : `))
	if !regexp.MustCompile(`\A# watch\n(BOOKMARK : version \d+\n)*MODIFIED : `).MatchString(second) {
		t.Errorf("the watch from version %s printed\n%s", version, second)
	}
}

// watchUntil runs listwatch until its output matches, and returns the output.
func watchUntil(t *testing.T, cluster *kube.Cluster, o listWatchOptions, end *regexp.Regexp) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out expect.Output
	ended := make(chan error, 1)
	go func() { ended <- runListWatch(ctx, &out, cluster, o) }()
	expect.Soon(t, "the output matches "+end.String(), func() bool { return end.MatchString(out.String()) })
	cancel()
	<-ended
	return out.String()
}
