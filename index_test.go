// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestIndexBy_holdsNobodyUp adds an index whose function does not return, and uses the
// informer in the meantime.
func TestIndexBy_holdsNobodyUp(t *testing.T) {
	s := newServer()
	s.put("shop/a", onNode("n1"))
	s.put("shop/b", onNode("n1"))
	pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	updated := make(chan struct{}, 1)
	pods.Handle(watershed.Handler[*corev1.Pod]{Update: func(_, _ *corev1.Pod) { updated <- struct{}{} }})
	running(t, pods.Run)
	<-pods.Synced()

	entered, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	built := make(chan *watershed.Index[*corev1.Pod, string])
	go func() {
		built <- watershed.IndexBy(pods, func(p *corev1.Pod) []string {
			enter()
			<-release
			return byNode(p)
		})
	}()
	<-entered
	used := make(chan struct{})
	go func() {
		defer close(used)
		s.put("shop/a", onNode("n2"))
		<-updated
		pods.Status()
		r := pods.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) {}})
		<-r.Synced()
		r.Close()
	}()
	select {
	case <-used:
	case <-time.After(time.Minute):
		t.Error("a write, Status or Handle waits for the index")
	}
	close(release)
	x := <-built
	<-used
	expect.Equal(t, names(x.Get("n1")), []string{"b"})
	expect.Equal(t, names(x.Get("n2")), []string{"a"})
}

// TestIndexBy_acrossTheEndOfARun ends the run while an index is computed for it. The
// index then belongs to the next run.
func TestIndexBy_acrossTheEndOfARun(t *testing.T) {
	s := newServer()
	s.put("shop/a", onNode("n1"))
	pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	stop := running(t, pods.Run)
	<-pods.Synced()
	entered, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	built := make(chan *watershed.Index[*corev1.Pod, string])
	go func() {
		built <- watershed.IndexBy(pods, func(p *corev1.Pod) []string {
			enter()
			<-release
			return byNode(p)
		})
	}()
	<-entered
	stop()
	close(release)
	x := <-built
	expect.Equal(t, names(x.Get("n1")), []string{})
	running(t, pods.Run)
	<-pods.Synced()
	expect.Equal(t, names(x.Get("n1")), []string{"a"})
}

// TestIndex_ofAnEarlierRunIsNotComputedAgain reads an index in a snapshot of a run that has
// ended.
func TestIndex_ofAnEarlierRunIsNotComputedAgain(t *testing.T) {
	s := newServer()
	s.put("shop/a", onNode("n1"))
	s.put("shop/b", onNode("n2"))
	pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
	var calls atomic.Int32
	x := watershed.IndexBy(pods, func(p *corev1.Pod) []string {
		calls.Add(1)
		return byNode(p)
	})
	stop := running(t, pods.Run)
	<-pods.Synced()
	was := pods.Snapshot()
	stop()
	before := calls.Load()
	expect.Equal(t, names(x.GetIn(was, "n1")), []string{"a"})
	expect.Equal(t, slices.Collect(x.ValuesIn(was)), []string{"n1", "n2"})
	if n := calls.Load() - before; n != 0 {
		t.Errorf("the function was called %d times for objects that were indexed", n)
	}
	expect.Equal(t, names(x.Get("n1")), []string{})
}
