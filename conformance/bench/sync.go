// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// reader is a way to get all n pods. It returns when it has them, with something
// that keeps them.
type reader func(ctx context.Context, cfg *rest.Config, n int) (any, error)

var syncTrial = trial[reading]{
	name: "sync",
	subjects: []subject[reading]{
		{name: "bare", runs: 9, measure: reader(readBare).measure},
		{name: "ours raw", runs: 9, measure: reader(readRaw).measure},
		{name: "ours typed", runs: 9, measure: reader(readTyped).measure},
		{name: "client-go", runs: 5, measure: reader(readClientGo).measure},
		{name: "dynamic", runs: 1, measure: reader(readDynamic).measure},
	},
	order: func(r reading) float64 { return r.CPU.Seconds() },
}

// reading is what a process measured of itself.
type reading struct {
	CPU, Wall time.Duration
	// Heap is live afterwards, RSS the most the process ever took.
	Heap, RSS uint64
}

// benchSync measures how long it takes to get 30,000 pods from a real API server.
func benchSync(out io.Writer) error {
	if done, err := syncTrial.isSubject(out); done {
		return err
	}
	n, err := variable(podsVariable, 30_000)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, env, err := loaded(ctx, n)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := syncTrial.once(ctx, syncTrial.subjects[0], env...); err != nil { // the server warms up
		return err
	}
	median, err := syncTrial.run(ctx, env...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pods from kube-apiserver over TLS, each reader in a process of its own; the median of several\n\n", n)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "reader\tCPU s\tus/pod\twall s\tlive heap MB\tmax RSS MB")
	for _, s := range syncTrial.subjects {
		r := median[s.name]
		fmt.Fprintf(w, "%s\t%.2f\t%.1f\t%.2f\t%.0f\t%.0f\n", s.name, r.CPU.Seconds(), float64(r.CPU.Microseconds())/float64(n),
			r.Wall.Seconds(), float64(r.Heap)/1e6, float64(r.RSS)/1e6)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	cpu := func(name string) float64 { return median[name].CPU.Seconds() }
	ours := cpu("ours typed")
	fmt.Fprintf(out, "\nsync: cpu ours=%.2f bare=%.2f client-go=%.2f dynamic=%.2f vs-bare=%.2f vs-client-go=%.2f vs-dynamic=%.2f\n",
		ours, cpu("bare"), cpu("client-go"), cpu("dynamic"), ours/cpu("bare"), cpu("client-go")/ours, cpu("dynamic")/ours)
	return nil
}

// measure reads once, in a process of its own.
func (read reader) measure(ctx context.Context) (reading, error) {
	cfg, n, err := given()
	if err != nil {
		return reading{}, err
	}
	began, used := time.Now(), cpuTime()
	kept, err := read(ctx, cfg, n)
	if err != nil {
		return reading{}, err
	}
	r := reading{CPU: cpuTime() - used, Wall: time.Since(began)}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Heap, r.RSS = m.HeapAlloc, maxRSS()
	runtime.KeepAlive(kept)
	return r, nil
}

// readBare reads the list's bytes and throws them away.
func readBare(ctx context.Context, cfg *rest.Config, _ int) (any, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/pods?resourceVersion=0", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return nil, err
}

func readRaw(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs(ctx, cfg, n, &watershed.Options[*wire.Object]{Resource: pods})
}

func readTyped(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	return readOurs[*corev1.Pod](ctx, cfg, n, nil)
}

func readOurs[T wire.Pointer[P], P any](ctx context.Context, cfg *rest.Config, n int, opts *watershed.Options[T]) (any, error) {
	cluster, err := kube.FromConfig(cfg, nil)
	if err != nil {
		return nil, err
	}
	i, err := watershed.New(cluster, opts)
	if err != nil {
		return nil, err
	}
	go func() { _ = i.Run(ctx) }() // lives as long as the process
	select {
	case <-i.Synced():
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %+v", ctx.Err(), i.Status())
	}
	return i, count(i.Len(), n)
}

func readClientGo(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	i := f.Core().V1().Pods().Informer()
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	return i, count(len(i.GetStore().ListKeys()), n)
}

func readDynamic(ctx context.Context, cfg *rest.Config, n int) (any, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	f := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	i := f.ForResource(pods).Informer()
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	return i, count(len(i.GetStore().ListKeys()), n)
}

func count(got, want int) error {
	if got != want {
		return errors.New("got " + strconv.Itoa(got) + " pods")
	}
	return nil
}
