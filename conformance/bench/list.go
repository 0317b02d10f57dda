// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	seconds, err := harness.EnvInt(harness.EnvSeconds, listSeconds)
	if err != nil {
		return err
	}
	b := &listBench{each: time.Duration(seconds) * time.Second, idle: map[*harness.Server]float64{}}
	if b.rounds, err = harness.EnvInt(harness.EnvRuns, listRounds); err != nil {
		return err
	}
	ctx := context.Background()
	if b.Servers, err = harness.StartServers(ctx, 30_000); err != nil {
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
	all := queries[0]
	ours, err := listSlowClients.Run(ctx, &b.Ours.Server, all.Paths[0], all.Format)
	if err != nil {
		return err
	}
	theirs, err := listSlowClients.Run(ctx, b.Kube, all.Paths[0], all.Format)
	if err != nil {
		return err
	}
	if err := b.changing(ctx, r); err != nil {
		return err
	}
	r.Heading += fmt.Sprintf(" %d clients that list everything in JSON at once, each reading at %d MB/s at most: %s; "+
		"%s.",
		listSlowClients.Clients, listSlowClients.Rate>>20, slowText("Watershed", ours),
		slowText("kube-apiserver", theirs))
	r.Value("slow-clients.ours", ours.Growth(), "bytes")
	r.Value("slow-clients.kube", theirs.Growth(), "bytes")
	r.Figure = listFigure(b.Pods, readings)
	x := func(name string) string {
		return harness.Ratio(readings[name].ours.Each(), readings[name].kube.Each()) + "x"
	}
	r.Summary = fmt.Sprintf("list: json=%s gzip=%s protobuf=%s page=%s get=%s of-bare=%.2f peak-rss-growth-mb=%.0f",
		x("json"), x("gzip"), x("protobuf"), x("page"), x("get one"), readings["json"].ofBare(), ours.Growth()/1e6)
	return r.Write(out)
}

// report returns the report without rows.
func (b *listBench) report() *harness.Report {
	return &harness.Report{
		Name: "list",
		Heading: fmt.Sprintf("%s pods, TLS and HTTP/2, processor time of the server for one request in ms; "+
			"%d times %d s each, in turns.",
			harness.Whole(float64(b.Pods)), b.rounds, b.each/time.Second),
		Columns:  []string{"request"},
		Measures: harness.Program,
		Server:   b.Version,
		Partial:  harness.IsExperiment(),
	}
}

// listQueries returns the queries, for the first n pods of a workload.
func listQueries(w kubetest.Workload, n int) []harness.Query {
	const path = "/api/v1/pods?pretty=false"
	json := harness.Format{Accept: harness.JSON}
	gets := harness.Query{Name: "get one", Format: json, Single: true, Clients: 4}
	for i := 0; i < n && len(gets.Paths) < 200; i += max(1, n/200) {
		pod := w.Pod(i)
		gets.Paths = append(gets.Paths, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"?pretty=false")
	}
	gets.Items = len(gets.Paths)
	perNamespace := map[string]int{}
	perComponent := map[string]int{}
	perApp := map[string]int{}
	for i := range n {
		pod := w.Pod(i)
		perNamespace[pod.Namespace]++
		perComponent[pod.Labels["app.kubernetes.io/component"]]++
		perApp[pod.Labels["app.kubernetes.io/name"]]++
	}
	namespaces := harness.Query{Name: "list a namespace", Format: json, Clients: 1}
	for i := 0; i < n && len(namespaces.Paths) < 20; i += 10 {
		name := w.Pod(i).Namespace
		namespaces.Paths = append(namespaces.Paths, "/api/v1/namespaces/"+name+"/pods?pretty=false")
		namespaces.Items += perNamespace[name]
	}
	list := func(name string, f harness.Format, items int, more string) harness.Query {
		return harness.Query{Name: name, Format: f, Paths: []string{path + more}, Clients: 1, Items: items}
	}
	page := list("page", json, n, fmt.Sprintf("&limit=%d", listPage))
	page.Paged = true
	app := w.Pod(n / 2).Labels["app.kubernetes.io/name"]
	return []harness.Query{
		list("json", json, n, ""),
		list("gzip", harness.Format{Accept: harness.JSON, Gzip: true}, n, ""),
		list("protobuf", harness.Format{Accept: harness.Protobuf}, n, ""),
		list("protobuf gzip", harness.Format{Accept: harness.Protobuf, Gzip: true}, n, ""),
		page, namespaces, gets,
		list("label, a third", json, perComponent["worker"], "&labelSelector=app.kubernetes.io/component=worker"),
		list("label, ten", json, perApp[app], "&labelSelector=app.kubernetes.io/name="+app),
	}
}

// listReading is the cost of a query for each server.
type listReading struct{ kube, ours, bare harness.QueryCost }

// ofBare returns the bare server's cost divided by the replica's.
func (r listReading) ofBare() float64 {
	return float64(r.bare.Each()) / float64(max(1, r.ours.Each()))
}

// addTo adds the reading to the table. A column that was not measured is empty.
func (r listReading) addTo(report *harness.Report, name string) {
	type reading = listReading
	ifBare := func(value func(reading) float64) func(reading) float64 {
		return func(r reading) float64 {
			if r.bare.Requests == 0 {
				return math.NaN()
			}
			return value(r)
		}
	}
	ms := harness.InMilliseconds
	harness.AddRows(report, []harness.Row[reading]{{Bar: harness.Bar{Name: name}, Key: harness.Key(name), Reading: r}},
		harness.Col("kube-apiserver", harness.Digits3, func(r reading) float64 { return ms(r.kube.Each()) }).
			As("kube", "ms"),
		harness.Col("Watershed", harness.Digits3, func(r reading) float64 { return ms(r.ours.Each()) }).
			As("ours", "ms"),
		harness.Col("net/http", harness.Digits3, ifBare(func(r reading) float64 { return ms(r.bare.Each()) })).
			As("bare", "ms"),
		harness.Col("kube-apiserver / Watershed", "%.2f", func(r reading) float64 {
			return float64(r.kube.Each()) / float64(max(r.ours.Each(), 1))
		}),
		harness.Col("net/http / Watershed", "%.2f", ifBare(reading.ofBare)),
		harness.Col("MB, kube-apiserver", harness.Digits3, func(r reading) float64 { return r.kube.Megabytes() }),
		harness.Col("Watershed", harness.Digits3, func(r reading) float64 { return r.ours.Megabytes() }).
			As("response", "MB"),
		harness.Col("requests/s, kube-apiserver", harness.Digits3, func(r reading) float64 {
			return r.kube.PerSecond()
		}),
		harness.Col("Watershed", harness.Digits3, func(r reading) float64 { return r.ours.PerSecond() }),
		harness.Col("the first, kube-apiserver", harness.Digits3, ifBare(func(r reading) float64 {
			return ms(r.kube.Cold)
		})),
		harness.Col("Watershed", harness.Digits3, ifBare(func(r reading) float64 { return ms(r.ours.Cold) })),
	)
}

// measure measures a query with all servers, after each has answered it once.
func (b *listBench) measure(ctx context.Context, q *harness.Query) (r listReading, err error) {
	for _, turn := range b.turns(&r, true) {
		if turn.cost.Cold, err = q.Verify(ctx, turn.server); err != nil {
			return r, err
		}
	}
	return r, b.takeTurns(ctx, q, q.Name, b.turns(&r, true))
}

// listTurn is a server, and the sum of its costs.
type listTurn struct {
	server *harness.Server
	cost   *harness.QueryCost
}

// turns returns the servers in the order of their turns.
func (b *listBench) turns(r *listReading, bare bool) []listTurn {
	all := []listTurn{{b.Kube, &r.kube}, {&b.Ours.Server, &r.ours}, {&b.Bare.Server, &r.bare}}
	if !bare {
		return all[:2]
	}
	return all
}

// takeTurns measures the servers in turns. profile names the profile of the replica.
func (b *listBench) takeTurns(ctx context.Context, q *harness.Query, profile string, turns []listTurn) error {
	for round := range b.rounds {
		for _, turn := range turns {
			wait := func() error { return nil }
			if round == 0 && turn.server == &b.Ours.Server {
				wait = b.Ours.Profile("list-"+strings.NewReplacer(" ", "-", ",", "").Replace(profile), b.each)
			}
			c, err := q.Run(ctx, turn.server, b.each, b.idle[turn.server])
			if err := errors.Join(err, wait()); err != nil {
				return fmt.Errorf("%s: %w", q.Name, err)
			}
			turn.cost.Add(c)
		}
	}
	return nil
}

// slowText describes the effect of slow clients, for the heading.
func slowText(name string, c harness.SlowCost) string {
	text := fmt.Sprintf("%s grows from %s by %s MB in %.0f s",
		name, harness.Megabytes(float64(c.Settled)), harness.Megabytes(c.Growth()), c.Wall.Seconds())
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
	err = b.whileChanging(ctx, r)
	stop()
	if failed := <-stopped; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	return err
}

func (b *listBench) whileChanging(ctx context.Context, r *harness.Report) error {
	defer clear(b.idle)
	time.Sleep(time.Second)
	for _, s := range []*harness.Server{b.Kube, &b.Ours.Server} {
		idle, err := s.IdleCPU(b.each * time.Duration(b.rounds))
		if err != nil {
			return err
		}
		b.idle[s] = idle
	}
	for _, q := range listQueries(kubetest.Workload{Seed: 1}, b.Pods)[:2] {
		var reading listReading
		name := fmt.Sprintf("%s, %d changes/s", q.Name, listChanges)
		if err := b.takeTurns(ctx, &q, q.Name+" changing", b.turns(&reading, false)); err != nil {
			return err
		}
		reading.addTo(r, name)
	}
	return nil
}

// listFigure returns the figure.
func listFigure(n int, readings map[string]listReading) harness.Figure {
	f := harness.Figure{
		Title: fmt.Sprintf("Processor time of the server for a read of %s pods", harness.Whole(float64(n))),
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
