// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
)

// duo is an informer of each side, of the same model, each with a handler that records
// everything.
type duo struct {
	*model
	t         *testing.T
	opts      watershed.SourceOptions[*corev1.Pod]
	resync    time.Duration
	ours      *watershed.Informer[*corev1.Pod]
	theirs    cache.SharedIndexInformer
	tape      tape // ours
	theirTape tape
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// apart runs a test of both sides in a bubble.
func apart(t *testing.T, body func(d *duo)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &duo{t: t, model: newModel(), opts: watershed.SourceOptions[*corev1.Pod]{
			Logger:    slog.New(slog.DiscardHandler),
			Reflector: reflector.Options{Timeout: 1000 * time.Hour, Silence: 1000 * time.Hour},
		}}
		defer d.end()
		body(d)
	})
}

// make makes the informers according to the fields.
func (d *duo) make() {
	d.ours = watershed.FromSource(ourSource{d.model.ours}, &d.opts)
	theirClient := newTheirClient(d.model.theirs, false)
	d.theirs = cache.NewSharedIndexInformerWithOptions(theirClient, &corev1.Pod{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: d.resync, Indexers: cache.Indexers{},
	})
	if f := d.opts.Transform; f != nil {
		must(d.t, d.theirs.SetTransform(func(obj any) (any, error) { return f(obj.(*corev1.Pod)) }))
	}
	d.ours.Handle(d.tape.handler())
	_, err := d.theirs.AddEventHandler(&d.theirTape)
	must(d.t, err)
}

// start makes the informers, if they do not exist, and runs them until they watch.
func (d *duo) start() {
	if d.ours == nil {
		d.make()
	}
	d.run()
	d.settle()
}

// run runs them.
func (d *duo) run() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.running.Go(func() { _ = d.ours.Run(ctx) })
	d.running.Go(func() { d.theirs.RunWithContext(ctx) })
}

func (d *duo) end() {
	if d.stop != nil {
		d.stop()
	}
	d.release()
	d.running.Wait()
}

func (d *duo) settle() {
	d.t.Helper()
	for range 2000 {
		if synctest.Wait(); d.settled() {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	d.t.Fatal("a side does not watch again")
}

// relist makes both read the whole state again, after some writes.
func (d *duo) relist(writes func()) {
	d.t.Helper()
	d.holdAt(connecting)
	d.model.end(endGone)
	if writes != nil {
		writes()
	}
	d.settle()
	d.release()
	d.settle()
}

// want compares the calls of the handlers since the last time.
func (d *duo) want(ours, theirs string) {
	d.t.Helper()
	want(d.t, "our handler", d.tape.take(), ours)
	want(d.t, "client-go's handler", d.theirTape.take(), theirs)
}

// tape is a handler of either side that records every call.
type tape struct {
	mu    sync.Mutex
	lines []string
}

func short(p *corev1.Pod) string { return keyOf(p) + "@" + p.ResourceVersion }

func (t *tape) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

func (t *tape) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.Join(t.lines, "; ")
	t.lines = nil
	return text
}

func (t *tape) add(p *corev1.Pod, initial bool) {
	if initial {
		t.note("first %s", short(p))
	} else {
		t.note("add %s", short(p))
	}
}

func (t *tape) update(old, now *corev1.Pod) { t.note("update %s to %s", short(old), short(now)) }

func (t *tape) remove(last *corev1.Pod, seen bool) {
	if seen {
		t.note("delete %s", short(last))
	} else {
		t.note("miss %s", short(last))
	}
}

func (t *tape) handler() watershed.Handler[*corev1.Pod] {
	return watershed.Handler[*corev1.Pod]{Add: t.add, Update: t.update, Delete: t.remove}
}

func (t *tape) OnAdd(obj any, initial bool) { t.add(obj.(*corev1.Pod), initial) }
func (t *tape) OnUpdate(old, now any)       { t.update(old.(*corev1.Pod), now.(*corev1.Pod)) }
func (t *tape) OnDelete(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		t.remove(d.Obj.(*corev1.Pod), false)
		return
	}
	t.remove(obj.(*corev1.Pod), true)
}

// has returns the objects of both sides.
func (d *duo) has() (ours, theirs string) {
	var a, b []string
	for _, p := range d.ours.All() {
		a = append(a, short(p))
	}
	for _, p := range d.theirs.GetStore().List() {
		b = append(b, short(p.(*corev1.Pod)))
	}
	slices.Sort(b)
	return strings.Join(a, " "), strings.Join(b, " ")
}

func (d *duo) wantHas(ours, theirs string) {
	d.t.Helper()
	a, b := d.has()
	want(d.t, "our objects", a, ours)
	want(d.t, "client-go's objects", b, theirs)
}
