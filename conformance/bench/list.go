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

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// listRounds is how often everything is measured, in turns.
	listRounds = 3
	// listSeconds is for how long, each time.
	listSeconds = 3
	// listChanges is changes per second while lists are measured again.
	listChanges = 100
)

// listBench is the servers that answer, and what they answered.
type listBench struct {
	kube   *server
	ours   *replica
	bare   *server
	rounds int
	each   time.Duration
	idle   map[*server]float64
}

// benchList measures what it costs servers to answer reads of 30,000 pods.
func benchList(out io.Writer) error {
	if done, err := isCompanion(out); done {
		return err
	}
	n, err := variable(podsVariable, 30_000)
	if err != nil {
		return err
	}
	seconds, err := variable(secondsVariable, listSeconds)
	if err != nil {
		return err
	}
	b := &listBench{each: time.Duration(seconds) * time.Second, idle: map[*server]float64{}}
	if b.rounds, err = variable(runsVariable, listRounds); err != nil {
		return err
	}
	ctx := context.Background()
	c, _, err := loaded(ctx, n)
	if err != nil {
		return err
	}
	defer c.Close()
	version, err := serverVersion(c.Config())
	if err != nil {
		return err
	}
	b.kube = apiServer(c)
	if b.ours, err = startReplica(ctx, c, "pods"); err != nil {
		return err
	}
	defer b.ours.close()
	bare, companion, err := startBare(ctx, "list", &b.ours.server)
	if err != nil {
		return err
	}
	defer companion.close()
	b.bare = bare

	r := &report{
		name: "list",
		heading: fmt.Sprintf("%s pods, TLS and HTTP/2, processor time of the server for one request in ms; %d times %d s each, in turns.",
			thousands(strconv.Itoa(n)), b.rounds, seconds),
		columns: []string{"request", "kube-apiserver", "Watershed", "net/http", "kube-apiserver / Watershed", "net/http / Watershed",
			"MB, kube-apiserver", "Watershed", "requests/s, kube-apiserver", "Watershed", "the first, kube-apiserver", "Watershed"},
		server: version,
		part:   isTrial(),
	}
	found := map[string]listReading{}
	for _, q := range questions(kubetest.Workload{Seed: 1}, n) {
		reading, err := b.measure(ctx, &q)
		if err != nil {
			return err
		}
		found[q.name] = reading
		reading.addTo(r, q.name)
	}
	pressures, err := b.pressures(ctx, questions(kubetest.Workload{Seed: 1}, n)[0])
	if err != nil {
		return err
	}
	if err := b.changing(ctx, c, n, r); err != nil {
		return err
	}
	r.heading += fmt.Sprintf(" %d clients that list everything in JSON at once, each reading at %d MB/s at most: %s.",
		pressClients, pressPace>>20, strings.Join(pressures.told(), "; "))
	r.figure = listFigure(n, found)
	if err := r.write(out); err != nil {
		return err
	}
	x := func(name string) string { return ratio(found[name].ours.each(), found[name].kube.each()) + "x" }
	fmt.Fprintf(out, "\nlist: json=%s gzip=%s protobuf=%s page=%s get=%s of-bare=%.2f peak-rss-growth-mb=%.0f\n",
		x("json"), x("gzip"), x("protobuf"), x("page"), x("get one"), found["json"].ofBare(), pressures[0].growth()/1e6)
	return nil
}

// listReading is what a question cost each server.
type listReading struct{ kube, ours, bare answered }

func (r listReading) ofBare() float64 {
	return float64(r.bare.each()) / float64(max(1, r.ours.each()))
}

func milliseconds(d time.Duration) string { return digits(d.Seconds() * 1e3) }

// digits is a number with three of them, or a whole one.
func digits(x float64) string {
	if x >= 1000 {
		return thousands(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func (r listReading) addTo(p *report, name string) {
	bare, of, first, ours := "", "", "", ""
	if r.bare.requests > 0 {
		bare, of = milliseconds(r.bare.each()), fmt.Sprintf("%.2f", r.ofBare())
		first, ours = milliseconds(r.kube.cold), milliseconds(r.ours.cold)
	}
	p.row(name, milliseconds(r.kube.each()), milliseconds(r.ours.each()), bare, ratio(r.ours.each(), r.kube.each()), of,
		digits(r.kube.megabytes()), digits(r.ours.megabytes()), digits(r.kube.perSecond()), digits(r.ours.perSecond()), first, ours)
}

// measure asks all servers a question, after each has answered it once.
func (b *listBench) measure(ctx context.Context, q *question) (r listReading, err error) {
	for _, s := range []struct {
		server *server
		into   *answered
	}{{b.kube, &r.kube}, {&b.ours.server, &r.ours}, {b.bare, &r.bare}} {
		if s.into.cold, err = q.verify(ctx, s.server); err != nil {
			return r, err
		}
	}
	return r, b.rally(ctx, q, q.name, &r, true)
}

// rally asks the servers in turns.
func (b *listBench) rally(ctx context.Context, q *question, name string, r *listReading, bare bool) error {
	for round := range b.rounds {
		if err := b.turn(ctx, q, b.kube, &r.kube); err != nil {
			return err
		}
		wait := func() error { return nil }
		if round == 0 {
			wait = b.ours.profile("list-"+strings.NewReplacer(" ", "-", ",", "").Replace(name), b.each)
		}
		if err := b.turn(ctx, q, &b.ours.server, &r.ours); err != nil {
			return err
		}
		if err := wait(); err != nil {
			return err
		}
		if !bare {
			continue
		}
		if err := b.turn(ctx, q, b.bare, &r.bare); err != nil {
			return err
		}
	}
	return nil
}

func (b *listBench) turn(ctx context.Context, q *question, s *server, sum *answered) error {
	a, err := q.ask(ctx, s, b.each, b.idle[s])
	if err != nil {
		return fmt.Errorf("%s: %w", q.name, err)
	}
	sum.requests += a.requests
	sum.bytes += a.bytes
	sum.cpu += a.cpu
	sum.wall += a.wall
	return nil
}

// pressures are what slow clients do to the replica and to the API server.
type pressures [2]pressure

func (b *listBench) pressures(ctx context.Context, q question) (c pressures, err error) {
	if c[0], err = press(ctx, &b.ours.server, &q); err != nil {
		return c, err
	}
	c[1], err = press(ctx, b.kube, &q)
	return c, err
}

func (c pressures) told() []string {
	var told []string
	for i, name := range []string{"Watershed", "kube-apiserver"} {
		text := fmt.Sprintf("%s grows from %s by %s MB in %.0f s", name, megabytes(float64(c[i].steady)), megabytes(c[i].growth()), c[i].wall.Seconds())
		if c[i].failed > 0 {
			text += fmt.Sprintf(" and fails %d of them (%v)", c[i].failed, c[i].why)
		}
		told = append(told, text)
	}
	return told
}

// changing measures lists while pods change, less what the changes cost without
// lists.
func (b *listBench) changing(ctx context.Context, c *kubetest.Cluster, n int, r *report) error {
	changes, err := storedChanges(c, n)
	if err != nil {
		return err
	}
	flowing, stop := context.WithCancel(ctx)
	flowed := make(chan error)
	go func() {
		_, err := changes.flow(flowing, math.MaxInt32, listChanges)
		flowed <- err
	}()
	err = b.whileChanging(ctx, n, r)
	stop()
	if failed := <-flowed; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	return err
}

func (b *listBench) whileChanging(ctx context.Context, n int, r *report) error {
	defer clear(b.idle)
	time.Sleep(time.Second)
	for _, s := range []*server{b.kube, &b.ours.server} {
		idle, err := s.idle(b.each * time.Duration(b.rounds))
		if err != nil {
			return err
		}
		b.idle[s] = idle
	}
	for _, q := range questions(kubetest.Workload{Seed: 1}, n)[:2] {
		var reading listReading
		name := fmt.Sprintf("%s, %d changes/s", q.name, listChanges)
		if err := b.rally(ctx, &q, q.name+" changing", &reading, false); err != nil {
			return err
		}
		reading.addTo(r, name)
	}
	return nil
}

func listFigure(n int, found map[string]listReading) figure {
	f := figure{
		title:    fmt.Sprintf("Processor time of the server for a read of %s pods", thousands(strconv.Itoa(n))),
		subjects: []bar{{"Watershed", oursColour}, {"bare net/http", oursPale}, {"kube-apiserver", clientGoColour}},
	}
	for _, name := range []string{"json", "gzip", "protobuf", "page"} {
		p := panel{title: name + ", ms"}
		for _, a := range []answered{found[name].ours, found[name].bare, found[name].kube} {
			p.add(a.each().Seconds()*1e3, milliseconds(a.each()))
		}
		f.panels = append(f.panels, p)
	}
	return f
}
