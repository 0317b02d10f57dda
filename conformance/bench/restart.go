// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/kube"
)

const (
	// restartFolder is the variable with the folder of the stored objects.
	restartFolder = "WATERSHED_RESTART_DIRECTORY"
	// restartChanges is how many pods change between two runs of the subject with files.
	restartChanges = 100
)

var restartTrial = harness.Trial[restartReading]{
	Name: "restart",
	Subjects: []harness.Subject[restartReading]{
		{Name: "ours, stored", Runs: 5, Measure: harness.OfCluster(restartStored)},
		{Name: "ours, cold", Runs: 3, Measure: harness.OfCluster(restartCold)},
		{Name: "client-go", Runs: 3, Measure: harness.OfCluster(restartClientGo)},
	},
	Warm:  true, // stores the objects
	Order: func(r restartReading) float64 { return r.Ready.Seconds() },
}

// restartReading is the result that a process has measured of itself, since it was executed.
type restartReading struct {
	// Ready is when the first pod could be read, Live when the copy was current.
	Ready, Live time.Duration
	CPU         time.Duration
	Lists       uint64 // complete states that were requested
	Bytes       uint64 // of all responses
}

// benchRestart measures the time until 100,000 pods can be read after a restart.
func benchRestart(out io.Writer) error {
	return harness.WithFolder(restartFolder, func() error {
		return restartTrial.RunWithPods(out, 100_000, restartReport)
	})
}

// restartReport returns the report.
func restartReport(c *harness.Cluster, median map[string]restartReading) *harness.Report {
	ours := median["ours, stored"]
	cold := median["ours, cold"]
	theirs := median["client-go"]
	r := &harness.Report{
		Heading: fmt.Sprintf("%d pods of kube-apiserver, of which %d have changed since the stored state; "+
			"each reader in a process of its own, times since it was executed; the median of several", c.Pods,
			restartChanges),
		Columns:  []string{"reader"},
		Measures: append([]string{"./disk"}, harness.Informer...),
		Summary: fmt.Sprintf("restart: ready-ms ours=%d cold=%d client-go=%d live-ms ours=%d "+
			"upstream-bytes ours=%d client-go=%d lists=%d",
			ours.Ready.Milliseconds(), cold.Ready.Milliseconds(), theirs.Ready.Milliseconds(), ours.Live.Milliseconds(),
			ours.Bytes, theirs.Bytes, ours.Lists),
	}
	type reading = restartReading
	harness.AddRows(r, restartTrial.Rows(median),
		harness.Ms("first read ms", "%.0f", func(r reading) time.Duration { return r.Ready }).As("first-read", "ms"),
		harness.Ms("current ms", "%.0f", func(r reading) time.Duration { return r.Live }).As("current", "ms"),
		harness.Col("CPU s", "%.2f", func(r reading) float64 { return r.CPU.Seconds() }).As("cpu", "s"),
		harness.Col("lists", "%.0f", func(r reading) uint64 { return r.Lists }).As("lists", ""),
		harness.Col("received KB", "%.0f", func(r reading) float64 { return float64(r.Bytes) / 1e3 }).
			As("received", "KB"),
	)
	return r
}

// restartStored reads with an informer that has files. In the end it changes some pods, for
// the next run.
func restartStored(ctx context.Context, cfg *rest.Config, pods int) (restartReading, error) {
	d, err := harness.OpenFiles(os.Getenv(restartFolder), nil)
	if err != nil {
		return restartReading{}, err
	}
	r, err := restartOurs(ctx, cfg, pods, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed, Disk: d.Directory})
	err = errors.Join(err, d.End(), d.Close())
	if err == nil {
		err = changePods(ctx, cfg)
	}
	return r, err
}

func restartCold(ctx context.Context, cfg *rest.Config, pods int) (restartReading, error) {
	return restartOurs(ctx, cfg, pods, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed})
}

// restartOurs reads with an informer, and returns when it has ended.
func restartOurs(
	ctx context.Context, cfg *rest.Config, pods int, opts *watershed.Options[*corev1.Pod],
) (r restartReading, err error) {
	traffic := &kube.Traffic{}
	cluster, err := kube.FromConfig(cfg, &kube.Options{Traffic: traffic})
	if err != nil {
		return r, err
	}
	i, err := watershed.New(cluster, opts)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	defer func() {
		cancel()
		if failed := <-ended; err == nil {
			err = failed
		}
	}()
	for i.Len() < pods && ctx.Err() == nil && !i.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	for range i.All() {
		break // one pod has been decoded
	}
	if r.Ready, err = harness.SinceExec(); err != nil {
		return r, err
	}
	if err := i.WaitForSync(ctx); err != nil {
		return r, err
	}
	if r.Live, err = harness.SinceExec(); err != nil {
		return r, err
	}
	s := traffic.Stats()
	r.CPU, r.Lists, r.Bytes = harness.CPUTime(), i.Connection().Lists, s.Get.Bytes+s.List.Bytes+s.Watch.Bytes
	return r, harness.CheckCount(i.Len(), pods)
}

// restartClientGo reads with client-go's informer.
func restartClientGo(ctx context.Context, cfg *rest.Config, pods int) (r restartReading, err error) {
	counted := rest.CopyConfig(cfg)
	var received atomic.Uint64
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return receiving{&received, next} })
	if _, err := harness.ReadClientGo(ctx, counted, pods); err != nil {
		return r, err
	}
	if r.Ready, err = harness.SinceExec(); err != nil {
		return r, err
	}
	r.Live, r.CPU, r.Lists, r.Bytes = r.Ready, harness.CPUTime(), 1, received.Load()
	return r, nil
}

// receiving counts the bytes of bodies as they arrive, before decompression.
type receiving struct {
	bytes *atomic.Uint64
	next  http.RoundTripper
}

func (t receiving) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = &receivedBody{resp.Body, t.bytes}
	}
	return resp, err
}

type receivedBody struct {
	io.ReadCloser
	bytes *atomic.Uint64
}

func (b *receivedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(uint64(n))
	return n, err
}

// changePods changes some pods.
func changePods(ctx context.Context, cfg *rest.Config) error {
	own := rest.CopyConfig(cfg)
	own.QPS = -1
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return err
	}
	some, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: restartChanges})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, time.Now().UnixNano())
	for i := range some.Items {
		p := &some.Items[i]
		if _, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
