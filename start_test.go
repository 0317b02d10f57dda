// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// busyServer changes right after its first list, so that the changes reach the informer
// together with the list's end.
type busyServer struct {
	*server
	after func()
}

func (b busyServer) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	w, err := b.server.Watch(ctx, opts)
	b.after()
	return w, err
}

// TestHandler_registeredBeforeRunStartsAtTheFirstList expects the behavior of
// client-go: the objects of the first list are initial, and every change after it is
// delivered, however late the handler's goroutine starts.
func TestHandler_registeredBeforeRunStartsAtTheFirstList(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.put("shop/a", nil)
			pods := watershed.FromSource(busyServer{s, func() {
				s.put("shop/a", nil)
				s.put("shop/b", nil)
				s.put("shop/b", nil)
				s.delete("shop/b")
			}}, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
			var handler, loop trace
			pods.Handle(handler.handler())
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				for c := range pods.Watch(ctx) {
					_, now := c.Raw()
					loop.add("%s %s@%d initial=%v", c.Type, now.Name(), now.Version(), c.Initial)
				}
			})
			synctest.Wait()
			running(t, pods.Run)
			synctest.Wait()
			expect.Equal(t, handler.take(), []string{
				"add a@101 initial=true", "update a@102 from 101", "add b@103 initial=false", "update b@104 from 103",
				"delete b@105 seen=true",
			})
			expect.Equal(t, loop.take(), []string{
				"Added a@101 initial=true", "Updated a@102 initial=false", "Added b@103 initial=false",
				"Updated b@104 initial=false",
				"Deleted b@105 initial=false",
			})
			cancel()
			wg.Wait()
		})
	}
}

// TestHandler_registeredInARunStartsAtItsRegistration changes an object after Handle
// has returned. The handler receives that as an update, not as part of the initial
// state.
func TestHandler_registeredInARunStartsAtItsRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("shop/a", nil)
		pods := watershed.FromSource(s, &watershed.SourceOptions[*corev1.Pod]{Reflector: patient})
		running(t, pods.Run)
		<-pods.Synced()
		var tr trace
		pods.Handle(tr.handler())
		s.put("shop/a", nil)
		s.put("shop/b", nil)
		synctest.Wait()
		expect.Equal(t, tr.take(), []string{
			"add a@101 initial=true", "update a@102 from 101", "add b@103 initial=false",
		})
	})
}

// TestHandler_closedBeforeTheRunIsFreed: an informer that runs later, or never, does not keep
// handlers that were closed.
func TestHandler_closedBeforeTheRunIsFreed(t *testing.T) {
	pods := watershed.FromSource[*corev1.Pod](newServer(), nil)
	kept := func() weak.Pointer[corev1.Pod] {
		mark := new(corev1.Pod) // the handler alone refers to it
		pods.Handle(watershed.Handler[*corev1.Pod]{Add: func(p *corev1.Pod, _ bool) { p.Name = mark.Name }}).Close()
		return weak.Make(mark)
	}()
	expect.Soon(t, "free", func() bool {
		runtime.GC()
		return kept.Value() == nil
	})
	runtime.KeepAlive(pods)
}
