// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
)

// script is a ListerWatcher that a test controls. It cannot stream its state.
type script struct {
	*cache.ListWatch
	lists, watches atomic.Int32
}

func (*script) IsWatchListSemanticsUnSupported() bool { return true }

func newScript(list func(n int32) (*corev1.PodList, error), watched func(n int32) (watch.Interface, error)) *script {
	s := &script{}
	s.ListWatch = &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			l, err := list(s.lists.Add(1))
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watched(s.watches.Add(1))
		},
	}
	return s
}

func listOf(version int, pods ...*corev1.Pod) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

func at(p *corev1.Pod, version int) *corev1.Pod {
	p.ResourceVersion = fmt.Sprint(version)
	return p
}

func TestDifference_C17_olderState(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		w := watch.NewFakeWithChanSize(10, false)
		i := subject.pods(newScript(
			func(int32) (*corev1.PodList, error) { return listOf(10, at(pod("1", "new"), 10)), nil },
			func(int32) (watch.Interface, error) { return w, nil }))
		synced(t, i)
		w.Modify(at(pod("1", "old"), 5))
		w.Add(at(pod("2", ""), 11))
		expect.Soon(t, "the addition", func() bool { return strings.HasSuffix(has(i), "2") })
		return has(i)
	}, "1=old 2", "1=new 2")
}

func TestDifference_C18_errorInTheStream(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		s := newScript(
			func(n int32) (*corev1.PodList, error) { return listOf(9 + int(min(n, 2))), nil },
			func(n int32) (watch.Interface, error) {
				w := watch.NewFakeWithChanSize(10, false)
				if n == 1 {
					w.Add(at(pod("1", ""), 11))
					status := apierrors.NewGenericServerResponse(http.StatusBadGateway, "", schema.GroupResource{}, "",
						"", 0, false).ErrStatus
					w.Error(&status)
				} else {
					w.Add(at(pod("2", ""), 12))
				}
				return w, nil
			})
		i := subject.pods(s)
		j := &recorder{}
		synced(t, i, join(t, i, j))
		expect.Soon(t, "the second watch", func() bool { return strings.Contains(j.believes(), "2") })
		return has(i)
	}, "2", "1 2") // client-go lists instead, and the list is empty
}

// TestInformer_vanishedResource: the objects of a resource that is no longer served are
// kept.
func TestInformer_vanishedResource(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		s := newScript(
			func(n int32) (*corev1.PodList, error) {
				if n > 1 {
					return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get",
						schema.GroupResource{Resource: "pods"}, "", "404 page not found", 0, true)
				}
				return listOf(10, at(pod("1", ""), 10)), nil
			},
			func(int32) (watch.Interface, error) {
				return nil, apierrors.NewResourceExpired("no")
			})
		i := subject.pods(s)
		w := &recorder{}
		synced(t, i, join(t, i, w))
		expect.Soon(t, "lists that fail", func() bool { return s.lists.Load() > 2 })
		time.Sleep(100 * time.Millisecond) // no deletion may be reported in this time
		return strings.Join(w.take(), ", ")
	}, "add 1 *", "add 1 *")
}

func TestDifference_C20_slowHandler(t *testing.T) {
	differ(t, func(t *testing.T, subject constructor) string {
		const changes = 8_000
		w := watch.NewFakeWithChanSize(0, false)
		i := subject.pods(newScript(
			func(int32) (*corev1.PodList, error) { return listOf(10, at(pod("1", "0"), 10)), nil },
			func(int32) (watch.Interface, error) { return w, nil }))
		told, last := 0, ""
		entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		join(t, i, cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) {
				close(entered)
				<-leave
			},
			UpdateFunc: func(_, now any) {
				told++
				if _, last = text(now); last == fmt.Sprint(changes) {
					close(done)
				}
			},
		})
		synced(t, i)
		<-entered
		// More than the window holds, with the size that the label adds to each.
		filler := strings.Repeat("x", 8<<10)
		for n := 1; n <= changes; n++ {
			p := at(pod("1", fmt.Sprint(n)), 10+n)
			p.Annotations = map[string]string{"filler": filler}
			w.Modify(p)
		}
		expect.Soon(t, "the last state", func() bool { return strings.HasSuffix(has(i), fmt.Sprintf("=%d", changes)) })
		close(leave)
		<-done
		if told == changes {
			return "every change"
		}
		return fmt.Sprintf("%d, and the last", told)
	}, "every change", "1, and the last")
}
