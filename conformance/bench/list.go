// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// listRounds is how often every query is measured, in turns.
	listRounds = 3
	// listSeconds is how long each measurement takes.
	listSeconds = 3
	// listChanges is changes per second while lists are measured again.
	listChanges = 100
	// listPage is the page size of kubectl and client-go.
	listPage = 500
)

// listSlowClients list everything at once and read 20 MB/s each.
var listSlowClients = harness.SlowClients{Clients: 50, Rate: 20 << 20}

// listRoles are the child processes of the benchmark.
var listRoles = map[string]harness.Role{harness.BareRole: harness.ServeBare}

// listBench has the servers that are compared.
type listBench struct {
	*harness.Servers
	rounds int
	// each is how long one measurement takes.
	each time.Duration
	// idle is how many processors a server uses without requests.
	idle map[*harness.Server]float64
}

// benchList measures the processor time of servers that answer reads of 30,000 pods.
func benchList(out io.Writer) error {
	if done, err := harness.RunAsChild(listRoles, out); done {
		return err
	}
	seconds, err := harness.EnvInt(harness.EnvSeconds, listSeconds)
	if err != nil {
		return err
	}
	b := &listBench{each: time.Duration(seconds) * time.Second, idle: map[*harness.Server]float64{}}
	if b.rounds, err = harness.EnvInt(harness.EnvRuns, listRounds); err != nil {
		return err
	}
	ctx := context.Background()
	if b.Servers, err = harness.StartServers(ctx, "list", 30_000); err != nil {
		return err
	}
	defer b.Close()
	return b.run(ctx, out)
}

// run measures all queries, first while nothing changes, then slow clients, then lists
// while pods change.
func (b *listBench) run(ctx context.Context, out io.Writer) error {
	r := b.report()
	queries := listQueries(kubetest.Workload{Seed: 1}, b.Pods)
	readings := map[string]listReading{}
	for _, q := range queries {
		reading, err := b.measure(ctx, &q)
		if err != nil {
			return err
		}
		readings[q.Name] = reading
		reading.addTo(r, q.Name)
	}
	ours, theirs, err := b.slowClients(ctx, queries[0])
	if err != nil {
		return err
	}
	if err := b.changing(ctx, r); err != nil {
		return err
	}
	r.Heading += fmt.Sprintf(" %d clients that list everything in JSON at once, each reading at %d MB/s at most: %s; %s.",
		listSlowClients.Clients, listSlowClients.Rate>>20, slowText("Watershed", ours), slowText("kube-apiserver", theirs))
	r.Figure = listFigure(b.Pods, readings)
	if err := r.Write(out); err != nil {
		return err
	}
	x := func(name string) string {
		return harness.Ratio(readings[name].ours.Each(), readings[name].kube.Each()) + "x"
	}
	fmt.Fprintf(out, "\nlist: json=%s gzip=%s protobuf=%s page=%s get=%s of-bare=%.2f peak-rss-growth-mb=%.0f\n",
		x("json"), x("gzip"), x("protobuf"), x("page"), x("get one"), readings["json"].ofBare(), ours.Growth()/1e6)
	return nil
}

// report returns the report without rows.
func (b *listBench) report() *harness.Report {
	return &harness.Report{
		Name: "list",
		Heading: fmt.Sprintf("%s pods, TLS and HTTP/2, processor time of the server for one request in ms; %d times %d s each, in turns.",
			harness.Thousands(strconv.Itoa(b.Pods)), b.rounds, b.each/time.Second),
		Columns: []string{"request", "kube-apiserver", "Watershed", "net/http", "kube-apiserver / Watershed", "net/http / Watershed",
			"MB, kube-apiserver", "Watershed", "requests/s, kube-apiserver", "Watershed", "the first, kube-apiserver", "Watershed"},
		Server:  b.Version,
		Partial: harness.IsExperiment(),
	}
}

// listQueries returns the queries, for the first n pods of a workload.
func listQueries(w kubetest.Workload, n int) []harness.Query {
	const list = "/api/v1/pods?pretty=false"
	json, protobuf := harness.Format{Accept: harness.JSON}, harness.Format{Accept: harness.Protobuf}
	jsonGzip, protobufGzip := harness.Format{Accept: harness.JSON, Gzip: true}, harness.Format{Accept: harness.Protobuf, Gzip: true}
	gets := harness.Query{Name: "get one", Format: json, Single: true, Clients: 4}
	for i := 0; i < n && len(gets.Paths) < 200; i += max(1, n/200) {
		pod := w.Pod(i)
		gets.Paths = append(gets.Paths, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"?pretty=false")
	}
	gets.Items = len(gets.Paths)
	perNamespace := map[string]int{}
	third, app := 0, w.Pod(n / 2).Labels["app.kubernetes.io/name"]
	ten := 0
	for i := range n {
		pod := w.Pod(i)
		perNamespace[pod.Namespace]++
		if pod.Labels["app.kubernetes.io/component"] == "worker" {
			third++
		}
		if pod.Labels["app.kubernetes.io/name"] == app {
			ten++
		}
	}
	namespaces := harness.Query{Name: "list a namespace", Format: json, Clients: 1}
	for i := 0; i < n && len(namespaces.Paths) < 20; i += 10 {
		name := w.Pod(i).Namespace
		namespaces.Paths = append(namespaces.Paths, "/api/v1/namespaces/"+name+"/pods?pretty=false")
		namespaces.Items += perNamespace[name]
	}
	return []harness.Query{
		{Name: "json", Format: json, Paths: []string{list}, Clients: 1, Items: n},
		{Name: "gzip", Format: jsonGzip, Paths: []string{list}, Clients: 1, Items: n},
		{Name: "protobuf", Format: protobuf, Paths: []string{list}, Clients: 1, Items: n},
		{Name: "protobuf gzip", Format: protobufGzip, Paths: []string{list}, Clients: 1, Items: n},
		{Name: "page", Format: json, Paths: []string{list + fmt.Sprintf("&limit=%d", listPage)}, Paged: true, Clients: 1, Items: n},
		namespaces,
		gets,
		{Name: "label, a third", Format: json, Paths: []string{list + "&labelSelector=app.kubernetes.io/component=worker"}, Clients: 1, Items: third},
		{Name: "label, ten", Format: json, Paths: []string{list + "&labelSelector=app.kubernetes.io/name=" + app}, Clients: 1, Items: ten},
	}
}

// listReading is the cost of a query for each server.
type listReading struct{ kube, ours, bare harness.QueryCost }

// ofBare returns the bare server's cost divided by the replica's.
func (r listReading) ofBare() float64 {
	return float64(r.bare.Each()) / float64(max(1, r.ours.Each()))
}

func (r listReading) addTo(report *harness.Report, name string) {
	bare, of, first, ours := "", "", "", ""
	if r.bare.Requests > 0 {
		bare, of = harness.Milliseconds(r.bare.Each()), fmt.Sprintf("%.2f", r.ofBare())
		first, ours = harness.Milliseconds(r.kube.Cold), harness.Milliseconds(r.ours.Cold)
	}
	report.Row(name, harness.Milliseconds(r.kube.Each()), harness.Milliseconds(r.ours.Each()), bare, harness.Ratio(r.ours.Each(), r.kube.Each()), of,
		harness.Significant(r.kube.Megabytes()), harness.Significant(r.ours.Megabytes()),
		harness.Significant(r.kube.PerSecond()), harness.Significant(r.ours.PerSecond()), first, ours)
}

// measure measures a query with all servers, after each has answered it once.
func (b *listBench) measure(ctx context.Context, q *harness.Query) (r listReading, err error) {
	if r.kube.Cold, err = q.Verify(ctx, b.Kube); err != nil {
		return r, err
	}
	if r.ours.Cold, err = q.Verify(ctx, &b.Ours.Server); err != nil {
		return r, err
	}
	if r.bare.Cold, err = q.Verify(ctx, &b.Bare.Server); err != nil {
		return r, err
	}
	err = b.takeTurns(ctx, q, q.Name, &r, true)
	return r, err
}

// takeTurns measures the servers in turns. profile names the profile of the replica.
func (b *listBench) takeTurns(ctx context.Context, q *harness.Query, profile string, r *listReading, bare bool) error {
	for round := range b.rounds {
		if err := b.turn(ctx, q, b.Kube, &r.kube); err != nil {
			return err
		}
		wait := func() error { return nil }
		if round == 0 {
			wait = b.Ours.Profile("list-"+strings.NewReplacer(" ", "-", ",", "").Replace(profile), b.each)
		}
		if err := b.turn(ctx, q, &b.Ours.Server, &r.ours); err != nil {
			return err
		}
		if err := wait(); err != nil {
			return err
		}
		if !bare {
			continue
		}
		if err := b.turn(ctx, q, &b.Bare.Server, &r.bare); err != nil {
			return err
		}
	}
	return nil
}

func (b *listBench) turn(ctx context.Context, q *harness.Query, s *harness.Server, sum *harness.QueryCost) error {
	c, err := q.Run(ctx, s, b.each, b.idle[s])
	if err != nil {
		return fmt.Errorf("%s: %w", q.Name, err)
	}
	sum.Add(c)
	return nil
}

// slowClients measures the replica and the API server with slow clients.
func (b *listBench) slowClients(ctx context.Context, q harness.Query) (ours, theirs harness.SlowCost, err error) {
	if ours, err = listSlowClients.Run(ctx, &b.Ours.Server, q.Paths[0], q.Format); err != nil {
		return ours, theirs, err
	}
	theirs, err = listSlowClients.Run(ctx, b.Kube, q.Paths[0], q.Format)
	return ours, theirs, err
}

// slowText describes the effect of slow clients, for the heading.
func slowText(name string, c harness.SlowCost) string {
	text := fmt.Sprintf("%s grows from %s by %s MB in %.0f s", name, harness.Megabytes(float64(c.Settled)), harness.Megabytes(c.Growth()), c.Wall.Seconds())
	if c.Failed > 0 {
		text += fmt.Sprintf(" and fails %d of them (%v)", c.Failed, c.Err)
	}
	return text
}

// changing measures lists while pods change. The cost of the changes without lists is
// subtracted.
func (b *listBench) changing(ctx context.Context, r *harness.Report) error {
	changes, err := harness.StoredChanges(b.Cluster.Cluster, b.Pods)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() {
		_, err := changes.Run(running, math.MaxInt32, listChanges)
		stopped <- err
	}()
	err = b.whileChanging(ctx, b.Pods, r)
	stop()
	if failed := <-stopped; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	return err
}

func (b *listBench) whileChanging(ctx context.Context, n int, r *harness.Report) error {
	defer clear(b.idle)
	time.Sleep(time.Second)
	for _, s := range []*harness.Server{b.Kube, &b.Ours.Server} {
		idle, err := s.IdleCPU(b.each * time.Duration(b.rounds))
		if err != nil {
			return err
		}
		b.idle[s] = idle
	}
	for _, q := range listQueries(kubetest.Workload{Seed: 1}, n)[:2] {
		var reading listReading
		name := fmt.Sprintf("%s, %d changes/s", q.Name, listChanges)
		if err := b.takeTurns(ctx, &q, q.Name+" changing", &reading, false); err != nil {
			return err
		}
		reading.addTo(r, name)
	}
	return nil
}

// listFigure returns the figure.
func listFigure(n int, readings map[string]listReading) harness.Figure {
	f := harness.Figure{
		Title: fmt.Sprintf("Processor time of the server for a read of %s pods", harness.Thousands(strconv.Itoa(n))),
		Subjects: []harness.Bar{
			{Name: "Watershed", Colour: harness.ColourOurs},
			{Name: "bare net/http", Colour: harness.ColourOursPale},
			{Name: "kube-apiserver", Colour: harness.ColourClientGo},
		},
	}
	for _, name := range []string{"json", "gzip", "protobuf", "page"} {
		p := harness.Panel{Title: name + ", ms"}
		for _, c := range []harness.QueryCost{readings[name].ours, readings[name].bare, readings[name].kube} {
			p.Add(c.Each().Seconds()*1e3, harness.Milliseconds(c.Each()))
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}
