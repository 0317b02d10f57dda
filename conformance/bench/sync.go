// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// subjectVariable makes the command measure one reader and nothing else: each is
// measured in a process of its own, so that none pays for another's garbage.
const subjectVariable = "WATERSHED_BENCH_SUBJECT"

// podsVariable makes a smaller run.
const podsVariable = "WATERSHED_PODS"

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// subject is a way to get all pods. It returns when it has them, with something
// that keeps them.
type subject struct {
	name string
	runs int
	read func(ctx context.Context, cfg *rest.Config, n int) (any, error)
}

var subjects = []subject{
	{"bare", 9, readBare},
	{"ours raw", 9, readRaw},
	{"ours typed", 9, readTyped},
	{"client-go", 5, readClientGo},
	{"dynamic", 1, readDynamic},
}

// reading is what a process measured of itself.
type reading struct {
	CPU, Wall time.Duration
	// Heap is live afterwards, RSS the most the process ever took.
	Heap, RSS uint64
}

// benchSync measures how long it takes to get 30,000 pods from a real API server.
func benchSync(out io.Writer) error {
	if name := os.Getenv(subjectVariable); name != "" {
		return readAs(name, out)
	}
	n := 30_000
	if text := os.Getenv(podsVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%s: %w", podsVariable, err)
		}
	}
	ctx := context.Background()
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.LoadPods(ctx, kubetest.Workload{Seed: 1}, n); err != nil {
		return err
	}
	readings := map[string][]reading{}
	if _, err := measure(ctx, c, "bare", n); err != nil { // the server warms up
		return err
	}
	for run := range 9 {
		for _, s := range subjects {
			if run >= s.runs {
				continue
			}
			r, err := measure(ctx, c, s.name, n)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			readings[s.name] = append(readings[s.name], r)
		}
	}
	// A machine that others use has better and worse moments: all readers have
	// their share of both, and the median is compared.
	median := map[string]reading{}
	for name, all := range readings {
		slices.SortFunc(all, func(a, b reading) int { return cmp.Compare(a.CPU, b.CPU) })
		median[name] = all[len(all)/2]
	}
	fmt.Fprintf(out, "%d pods from kube-apiserver over TLS, each reader in a process of its own; the median of several\n\n", n)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "reader\tCPU s\tus/pod\twall s\tlive heap MB\tmax RSS MB")
	for _, s := range subjects {
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

// measure runs one reader in a process of its own.
func measure(ctx context.Context, c *kubetest.Cluster, name string, n int) (reading, error) {
	var r reading
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, "sync")
	cmd.Env = append(os.Environ(), subjectVariable+"="+name, "KUBECONFIG="+c.Kubeconfig(), podsVariable+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	_, last, _ := bytes.Cut(text, []byte("\n")) // after the heading
	return r, json.Unmarshal(last, &r)
}

// readAs is the process that measures one reader.
func readAs(name string, out io.Writer) error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv(podsVariable))
	if err != nil {
		return err
	}
	for _, s := range subjects {
		if s.name != name {
			continue
		}
		began, used := time.Now(), cpuTime()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		kept, err := s.read(ctx, cfg, n)
		if err != nil {
			return err
		}
		r := reading{CPU: cpuTime() - used, Wall: time.Since(began)}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.Heap, r.RSS = m.HeapAlloc, maxRSS()
		runtime.KeepAlive(kept)
		return json.NewEncoder(out).Encode(r)
	}
	return fmt.Errorf("no reader is called %s", name)
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
