// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/watershed-project/watershed/internal/expect"
)

// serveNamespaces returns a server with the pods 1 and 2 in the namespaces a and b. Then it
// changes 2, deletes 1 and adds 9 in each. Pages have at most one pod if the client limits
// them.
func serveNamespaces(t *testing.T, streams bool) *apiServer {
	t.Helper()
	pods := map[string][]*corev1.Pod{}
	for i, namespace := range []string{"a", "b"} {
		pods[namespace] = []*corev1.Pod{
			versioned(labelled(pod(namespace, "1"), "x"), i+1), versioned(labelled(pod(namespace, "2"), "x"), i+3),
		}
		pods[""] = append(pods[""], pods[namespace]...)
	}
	s := serve(t, runtime.ContentTypeJSON)
	s.list = func(w http.ResponseWriter, r *http.Request) {
		all := pods[requestedNamespace(r)]
		list := s.podList(all...)
		if n := 0; r.URL.Query().Get("limit") == "1" {
			if after := r.URL.Query().Get("continue"); after != "" {
				n = slices.IndexFunc(all, func(p *corev1.Pod) bool { return p.Namespace+p.Name == after }) + 1
			}
			list = s.podList(all[n])
			if n+1 < len(all) {
				list.Continue = all[n].Namespace + all[n].Name
			}
		}
		s.send(w, http.StatusOK, list)
	}
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		var events []watch.Event
		if r.URL.Query().Get("sendInitialEvents") != "" {
			if !streams {
				s.refuseStream(w, r)
				return
			}
			for _, p := range pods[requestedNamespace(r)] {
				events = append(events, watch.Event{Type: watch.Added, Object: p})
			}
			events = append(events, bookmark(10))
		}
		for _, namespace := range []string{"a", "b"} {
			if asked := requestedNamespace(r); asked == "" || asked == namespace {
				events = append(events,
					watch.Event{Type: watch.Modified, Object: versioned(labelled(pod(namespace, "2"), "y"), 11)},
					watch.Event{Type: watch.Deleted, Object: versioned(labelled(pod(namespace, "1"), "x"), 12)},
					watch.Event{Type: watch.Added, Object: versioned(labelled(pod(namespace, "9"), "z"), 13)})
			}
		}
		s.stream(w, r, events...)
	}
	return s
}

func requestedNamespace(r *http.Request) string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") {
		return namespace
	}
	return ""
}

// derived is a watch of events that a function has passed, of several watches. Unlike
// [watch.Filter] it ends when it is stopped, whether or not its events are read.
type derived struct {
	parts   []watch.Interface
	results chan watch.Event
	stopped chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

func derive(pass func(*corev1.Pod) bool, parts ...watch.Interface) watch.Interface {
	d := &derived{parts: parts, results: make(chan watch.Event), stopped: make(chan struct{})}
	for _, part := range parts {
		d.wg.Go(func() {
			for e := range part.ResultChan() {
				if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Bookmark && !pass(p) {
					continue
				}
				select {
				case d.results <- e:
				case <-d.stopped:
					return
				}
			}
		})
	}
	go func() {
		d.wg.Wait()
		close(d.results)
	}()
	return d
}

func (d *derived) ResultChan() <-chan watch.Event { return d.results }

func (d *derived) Stop() {
	d.once.Do(func() { close(d.stopped) })
	for _, part := range d.parts {
		part.Stop()
	}
}

type (
	listFunc  = func(context.Context, metav1.ListOptions) (*corev1.PodList, error)
	watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

// listerWatchers are the ListerWatchers that a program may write, by what they do with the
// responses of their client, with the objects that their informers have in the end.
var listerWatchers = []struct {
	name string
	make func(kubernetes.Interface) (listFunc, watchFunc)
	want string
	// tapped means that its watches are read as bytes.
	tapped bool
}{
	{"plain", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return c.CoreV1().Pods("").List, c.CoreV1().Pods("").Watch
	}, "a/2=y a/9=z b/2=y b/9=z", true},
	{"merges namespaces", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				opts.Limit = 0
				all, err := c.CoreV1().Pods("a").List(ctx, opts)
				if err != nil {
					return nil, err
				}
				more, err := c.CoreV1().Pods("b").List(ctx, opts)
				if err != nil {
					return nil, err
				}
				all.Items = append(all.Items, more.Items...)
				return all, nil
			}, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				a, err := c.CoreV1().Pods("a").Watch(ctx, opts)
				if err != nil {
					return nil, err
				}
				b, err := c.CoreV1().Pods("b").Watch(ctx, opts)
				if err != nil {
					a.Stop()
					return nil, err
				}
				return derive(func(*corev1.Pod) bool { return true }, a, b), nil
			}
	}, "a/2=y a/9=z b/2=y b/9=z", false},
	{"filters", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				list, err := c.CoreV1().Pods("").List(ctx, opts)
				if err == nil {
					list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Name == "2" })
				}
				return list, err
			}, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := c.CoreV1().Pods("").Watch(ctx, opts)
				if err != nil {
					return nil, err
				}
				return derive(func(p *corev1.Pod) bool { return p.Name != "2" }, w), nil
			}
	}, "a/9=z b/9=z", false},
	{"edits", func(c kubernetes.Interface) (listFunc, watchFunc) {
		edit := func(p *corev1.Pod) bool {
			p.Labels["label"] += "!"
			return true
		}
		return func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				list, err := c.CoreV1().Pods("").List(ctx, opts)
				if err == nil {
					for i := range list.Items {
						edit(&list.Items[i])
					}
				}
				return list, err
			}, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := c.CoreV1().Pods("").Watch(ctx, opts)
				if err != nil {
					return nil, err
				}
				return derive(edit, w), nil
			}
	}, "a/2=y! a/9=z! b/2=y! b/9=z!", false},
	{"reads pages of its own", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
			p := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
				return c.CoreV1().Pods("").List(ctx, opts)
			}))
			p.PageSize = 1
			all := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
			err := p.EachListItem(ctx, metav1.ListOptions{ResourceVersion: opts.ResourceVersion},
				func(obj runtime.Object) error {
					all.Items = append(all.Items, *obj.(*corev1.Pod))
					return nil
				})
			return all, err
		}, c.CoreV1().Pods("").Watch
	}, "a/2=y a/9=z b/2=y b/9=z", true},
	{"sends other requests first", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				if _, err := c.CoreV1().Pods("a").List(ctx, metav1.ListOptions{}); err != nil {
					return nil, err
				}
				return c.CoreV1().Pods("").List(ctx, opts)
			}, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				other, err := c.CoreV1().Pods("a").Watch(ctx, metav1.ListOptions{})
				if err != nil {
					return nil, err
				}
				other.Stop()
				return c.CoreV1().Pods("").Watch(ctx, opts)
			}
	}, "a/2=y a/9=z b/2=y b/9=z", false},
	{"has no context", func(c kubernetes.Interface) (listFunc, watchFunc) {
		return func(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				return c.CoreV1().Pods("").List(context.Background(), opts)
			}, func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return c.CoreV1().Pods("").Watch(context.Background(), opts)
			}
	}, "a/2=y a/9=z b/2=y b/9=z", false},
}

// TestListerWatcher_decidesWhatAnInformerHas compares informers with a tap to client-go's.
func TestListerWatcher_decidesWhatAnInformerHas(t *testing.T) {
	for _, c := range listerWatchers {
		for _, streams := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed %v", c.name, streams), func(t *testing.T) {
				s := serveNamespaces(t, streams)
				cfg, _ := s.config()
				list, watches := c.make(clientset(t, cfg))
				lw := &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						return list(ctx, opts)
					},
					WatchFuncWithContext: watches,
				}
				ours := podInformer(lw, 0, nil)
				stop := synced(t, ours)
				expect.Soon(t, c.want, func() bool { return content(ours) == c.want })
				if n := s.watched.Load(); n == 0 != c.tapped {
					t.Errorf("its client read %d bytes of watches; read by the informer: want %v", n, c.tapped)
				}
				stop()
				theirs := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, nil)
				synced(t, theirs)
				expect.Soon(t, c.want+" with client-go", func() bool { return content(theirs) == c.want })
			})
		}
	}
}

// content returns the keys and labels of an informer's objects.
func content(i cache.SharedIndexInformer) string {
	var out []string
	for _, obj := range i.GetStore().List() {
		out = append(out, describe(obj))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestListerWatcher_thatHangsDoesNotKeepAStoppedInformer has functions without contexts.
func TestListerWatcher_thatHangsDoesNotKeepAStoppedInformer(t *testing.T) {
	for _, hanging := range []string{"list", "watch"} {
		for subject, newInformer := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
			"ours": func(lw cache.ListerWatcher) cache.SharedIndexInformer { return podInformer(lw, 0, nil) },
			"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, nil)
			},
		} {
			if hanging == "watch" && subject == "client-go" {
				continue // its Run waits for the watch
			}
			t.Run(hanging+" "+subject, func(t *testing.T) {
				called, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
				hang := func(verb string) {
					if verb == hanging {
						close(called)
						<-release
						close(returned)
					}
				}
				late := watch.NewFake()
				i := newInformer(listOnly{&cache.ListWatch{
					//nolint:staticcheck // a function without a context is what can hang
					ListFunc: func(metav1.ListOptions) (runtime.Object, error) {
						hang("list")
						return &corev1.PodList{
							ListMeta: metav1.ListMeta{ResourceVersion: "1"},
							Items:    []corev1.Pod{*pod("a", "1")},
						}, nil
					},
					//nolint:staticcheck // a function without a context is what can hang
					WatchFunc: func(metav1.ListOptions) (watch.Interface, error) {
						hang("watch")
						return late, nil
					},
				}})
				stop := run(t, i)
				<-called
				stop()
				close(release)
				<-returned
				if hanging == "watch" {
					expect.Soon(t, "the end of the late watch", late.IsStopped)
				} else if n := len(i.GetStore().ListKeys()); n != 0 {
					t.Errorf("a list that ended after the stop was stored: %d objects", n)
				}
			})
		}
	}
}
