// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// verifyRuns is how often each way to read is measured, after one run that warms the
// server.
const verifyRuns = 5

// verifyCost is what it costs to read all pods once.
type verifyCost struct {
	// server, etcd and ours are the processor time of kube-apiserver, etcd and this process.
	server, etcd, ours time.Duration
	// bytes is how many bytes kube-apiserver sent, compressed and encrypted.
	bytes int64
	took  time.Duration
}

// verifyWay is a way to read all pods.
type verifyWay struct {
	name string
	read func(context.Context) error
}

// benchVerify measures what it costs to compare the copy of 30,000 pods with its API
// server, next to lists of the same pods.
func benchVerify(out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c, err := harness.StartCluster(ctx, 30_000)
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := newVerifyWorld(ctx, c)
	if err != nil {
		return err
	}
	defer w.close()
	ways := []verifyWay{
		{"verify", w.verify(false)},
		{"verify --deep", w.verify(true)},
		{"list in pages of 500", w.list(false, reflector.ListOptions{Limit: 500})},
		{"list at once, from memory", w.list(false, reflector.ListOptions{Version: "0"})},
		{"list in pages of 500, JSON", w.list(true, reflector.ListOptions{Limit: 500})},
	}
	all := map[string][]verifyCost{}
	for run := range verifyRuns + 1 {
		for _, way := range ways {
			cost, err := w.measure(ctx, way.read)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			if run > 0 {
				all[way.name] = append(all[way.name], cost)
			}
		}
	}
	r := &harness.Report{
		Heading: fmt.Sprintf("Reading %d pods once from kube-apiserver %s; the median of %d runs. "+
			"Bytes are compressed and encrypted.",
			c.Pods, c.Version, verifyRuns),
		Columns: []string{"request"},
		Summary: "verify:",
	}
	type reading = verifyCost
	var rows []harness.Row[reading]
	for _, way := range ways {
		m := harness.Median(all[way.name], func(c reading) float64 { return c.server.Seconds() })
		rows = append(rows, harness.Row[reading]{Bar: harness.Bar{Name: way.name}, Reading: m})
		r.Summary += fmt.Sprintf(" %s=%dms/%dB", strings.ReplaceAll(way.name, " ", "-"), m.server.Milliseconds(),
			m.bytes)
	}
	harness.AddRows(r, rows,
		harness.Ms("CPU of kube-apiserver, ms", "%.0f", func(c reading) time.Duration { return c.server }),
		harness.Ms("CPU of etcd, ms", "%.0f", func(c reading) time.Duration { return c.etcd }),
		harness.Ms("CPU of the replica, ms", "%.0f", func(c reading) time.Duration { return c.ours }),
		harness.Col("MB sent", "%.1f", func(c reading) float64 { return float64(c.bytes) / 1e6 }),
		harness.Ms("time, ms", "%.0f", func(c reading) time.Duration { return c.took }),
	)
	return r.Write(out)
}

// verifyWorld is a cluster whose pods a fleet mirrors through a proxy that counts bytes.
type verifyWorld struct {
	server, etcd harness.Process
	proxy        *kubetest.Proxy
	cluster      *kube.Cluster
	member       *fleet.Member
	pods         int
	stop         func()
}

func newVerifyWorld(ctx context.Context, c *harness.Cluster) (_ *verifyWorld, err error) {
	proxy, err := kubetest.NewProxy(strings.TrimPrefix(c.Config().Host, "https://"))
	if err != nil {
		return nil, err
	}
	w := &verifyWorld{
		server: harness.Process{Name: "kube-apiserver", PID: c.APIServer.PID()},
		etcd:   harness.Process{Name: "etcd", PID: c.Etcd.PID()},
		proxy:  proxy, pods: c.Pods, stop: proxy.Close,
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	cfg := proxy.Config(c.Config())
	if w.cluster, err = kube.FromConfig(cfg, &kube.Options{Name: "bench"}); err != nil {
		return nil, err
	}
	d, err := directory.NewStatic(fleet.Entry{Name: "bench", Config: cfg})
	if err != nil {
		return nil, err
	}
	f, err := fleet.New(d, &fleet.Options{
		Resources: []string{"pods"}, History: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.Run(running) }()
	w.stop = func() {
		end()
		<-done
		proxy.Close()
	}
	if err := f.WaitForSync(ctx); err != nil {
		return nil, err
	}
	w.member, _ = f.Member("bench")
	return w, nil
}

func (w *verifyWorld) close() { w.stop() }

// verify compares the copy with the server.
func (w *verifyWorld) verify(deep bool) func(context.Context) error {
	return func(ctx context.Context) error {
		v, err := w.member.Verify(ctx, schema.GroupResource{Resource: "pods"}, fleet.VerifyOptions{Deep: deep})
		if err == nil && (v.Objects != w.pods || v.Divergences() != 0) {
			err = errors.New(v.String())
		}
		return err
	}
}

// list reads all pods and drops them.
func (w *verifyWorld) list(json bool, opts reflector.ListOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		source, err := w.cluster.Source(kube.Query{
			Resource: corev1.SchemeGroupVersion.WithResource("pods"), JSON: json,
		})
		if err != nil {
			return err
		}
		n, next := 0, opts
		for more := true; more; more = next.Continue != "" {
			page, err := source.List(ctx, next, func(*wire.Object) error {
				n++
				return nil
			})
			if err != nil {
				return err
			}
			next = reflector.ListOptions{Limit: opts.Limit, Continue: page.Continue}
		}
		if n != w.pods {
			return fmt.Errorf("%d pods of %d", n, w.pods)
		}
		return nil
	}
}

// measure returns what a way to read costs. The servers have time to become idle before.
func (w *verifyWorld) measure(ctx context.Context, read func(context.Context) error) (verifyCost, error) {
	time.Sleep(2 * time.Second)
	before, err := w.used()
	if err != nil {
		return verifyCost{}, err
	}
	began := time.Now()
	if err := read(ctx); err != nil {
		return verifyCost{}, err
	}
	took := time.Since(began)
	after, err := w.used()
	return verifyCost{
		server: after.server - before.server, etcd: after.etcd - before.etcd, ours: after.ours - before.ours,
		bytes: after.bytes - before.bytes, took: took,
	}, err
}

// used returns what was used up to now.
func (w *verifyWorld) used() (verifyCost, error) {
	server, err := w.server.CPU()
	etcd, err2 := w.etcd.CPU()
	return verifyCost{
		server: server, etcd: etcd, ours: harness.CPUTime(), bytes: w.proxy.Stats().Down,
	}, errors.Join(err, err2)
}
