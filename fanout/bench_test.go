// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

// labelled is an object that is only the values of its labels.
type labelled struct{ labels []fanout.Value }

// waitingLog is a log with readers that wait for changes that do not happen.
type waitingLog struct {
	name     string
	readers  int
	interest func(i int) fanout.Interest
	log      *fanout.Log[*labelled]
	revision uint64
	// one is the time to publish a change, and many that in a batch of 100.
	one, many time.Duration
}

// start opens the readers and returns when all of them wait. They end with ctx.
func (l *waitingLog) start(ctx context.Context, wg *sync.WaitGroup) error {
	l.log = fanout.New(&fanout.Options[*labelled]{Dimensions: []fanout.Dimension[*labelled]{{
		Name:   "label",
		Values: func(o *labelled) []fanout.Value { return o.labels },
	}}})
	for i := range l.readers {
		cursor, err := l.log.Cursor(0, l.interest(i))
		if err != nil {
			return err
		}
		wg.Go(func() { _, _ = cursor.Next(ctx) }) // waits until the benchmark ends
	}
	for l.log.Stats().Waiting < l.readers {
		runtime.Gosched()
	}
	return nil
}

// measurePublish measures the logs in turns, and keeps the best time of each.
func measurePublish(logs []*waitingLog) {
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("other-%d/pod-%d", i%50, i)
	}
	obj := &labelled{}
	for _, label := range []string{"app=checkout", "pod-template-hash=5d9c7b", "tier=backend"} {
		obj.labels = append(obj.labels, fanout.ValueOf(label))
	}
	// A collection would scan the stacks of all waiting goroutines, which is not part of
	// publishing.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	// A round takes a millisecond, so that the best of many is one that nothing
	// interrupted.
	const (
		rounds  = 300
		changes = 5_000
	)
	publish := func(l *waitingLog, buf []store.Change[*labelled]) time.Duration {
		start := time.Now()
		for done := 0; done < changes; done += len(buf) {
			for i := range buf {
				l.revision++
				key := keys[l.revision%1024]
				buf[i] = store.Change[*labelled]{
					Type: delta.Updated, Key: key, Old: obj, New: obj, Revision: l.revision,
				}
			}
			l.log.Publish(buf)
		}
		return time.Since(start) / changes
	}
	one, many := make([]store.Change[*labelled], 1), make([]store.Change[*labelled], 100)
	for round := range rounds {
		for _, l := range logs {
			a, b := publish(l, one), publish(l, many)
			if round == 0 {
				l.one, l.many = a, b
			}
			l.one, l.many = min(l.one, a), min(l.many, b)
		}
		if round%50 == 49 {
			runtime.GC()
		}
	}
}

// BenchmarkFanout measures the time to publish a change if no reader is interested in it,
// for all numbers of readers in turns. make bench NAME=fanout runs it.
func BenchmarkFanout(b *testing.B) {
	ofNamespace := func(i int) fanout.Interest { return fanout.Namespace(fmt.Sprintf("namespace-%d", i)) }
	ofLabel := func(i int) fanout.Interest { return fanout.In("label", fmt.Sprintf("app=application-%d", i)) }
	logs := []*waitingLog{
		{name: "no reader"},
		{name: "100 of namespaces", readers: 100, interest: ofNamespace},
		{name: "10,000 of namespaces", readers: 10_000, interest: ofNamespace},
		{name: "10,000 of labels", readers: 10_000, interest: ofLabel},
		{name: "10,000 of either", readers: 10_000, interest: func(i int) fanout.Interest {
			if i%2 == 0 {
				return ofNamespace(i)
			}
			return ofLabel(i)
		}},
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, l := range logs {
		if err := l.start(ctx, &wg); err != nil {
			b.Fatal(err)
		}
	}
	measurePublish(logs)
	for _, l := range logs {
		b.Run(l.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op") // the measurement is over
			b.ReportMetric(float64(l.one), "ns-one-by-one")
			b.ReportMetric(float64(l.many), "ns-in-batches-of-100")
		})
	}
	times := func(at int) float64 { return float64(logs[at].one) / float64(logs[0].one) }
	fmt.Fprintf(os.Stdout, "fanout: publish beside-0=%v beside-10000 namespaces=%.2fx labels=%.2fx either=%.2fx\n",
		logs[0].one, times(2), times(3), times(4))
}
