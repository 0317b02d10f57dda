// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/internal/expect"
)

// stream is a watch that is being read.
type stream struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	answer answer
}

// openStream starts a watch and returns when the server has responded.
func openStream(ctx context.Context, s *subject, r request) *stream {
	ctx, cancel := context.WithCancel(ctx)
	st := &stream{cancel: cancel}
	resp, err := s.do(ctx, r, nil)
	if err != nil {
		st.answer.err = err
		return st
	}
	st.answer.code, st.answer.header = resp.StatusCode, resp.Header
	st.done.Go(func() {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return
		}
		err := readEvents(resp, func(e event) {
			st.mu.Lock()
			defer st.mu.Unlock()
			st.answer.events = append(st.answer.events, e)
		})
		if ctx.Err() != nil {
			err = nil
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		st.answer.err = err
		st.answer.open = ctx.Err() != nil
	})
	return st
}

// seen returns the number of significant events, and when the last one arrived.
func (st *stream) seen() (int, time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	events := significant(st.answer.events)
	if len(events) == 0 {
		return 0, time.Time{}
	}
	return len(events), events[len(events)-1].at
}

// close ends the watch and returns its response.
func (st *stream) close() *answer {
	st.cancel()
	st.done.Wait()
	return &st.answer
}

// quiet is how long nothing must arrive until a watch counts as complete.
const quiet = 1500 * time.Millisecond

// live opens all watches at all subjects, makes changes, and compares the events. It returns
// the results by column.
func (w *comparedCluster) live(ctx context.Context, requests []request, columns []column) ([][]result, error) {
	if err := w.before(ctx, "busy"); err != nil {
		return nil, fmt.Errorf("before the watches: %w", err)
	}
	// watches are those of one request: that of the server first.
	watches := make([][]*stream, len(requests))
	for i, r := range requests {
		subjects := []*subject{w.server}
		for _, c := range columns {
			subjects = append(subjects, c.subject)
		}
		for _, s := range subjects {
			expanded, err := w.expand(ctx, s, r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r, err)
			}
			watches[i] = append(watches[i], openStream(ctx, s, expanded))
		}
	}
	started := time.Now()
	if err := w.scene(ctx, "busy"); err != nil {
		return nil, fmt.Errorf("the scene: %w", err)
	}
	awaitEvents(watches, started)
	results := make([][]result, len(columns))
	for i, r := range requests {
		server := watches[i][0].close()
		for j := range columns {
			results[j] = append(results[j], w.compare(&columns[j], r, server, watches[i][j+1].close()))
		}
	}
	return results, nil
}

// awaitEvents waits until all watches are complete. The server's watches, the first of each
// request, determine how many events there are. The others have some time to receive them,
// and some more to receive too many.
func awaitEvents(watches [][]*stream, started time.Time) {
	end := time.Now().Add(quiet)
	for now := time.Now(); now.Before(end); now = time.Now() {
		time.Sleep(50 * time.Millisecond)
		behind := false
		for _, of := range watches {
			n, last := of[0].seen()
			for _, other := range of[1:] {
				m, _ := other.seen()
				behind = behind || m < n
			}
			if later := last.Add(quiet); later.After(end) {
				end = later
			}
		}
		if behind && time.Since(started) < 10*time.Second {
			end = time.Now().Add(quiet)
		}
	}
}

var (
	widgetResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	planetResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "planets"}
)

// before creates objects in a namespace that exist when watches begin, and waits until
// the replicas have them.
func (w *comparedCluster) before(ctx context.Context, namespace string) error {
	for _, name := range []string{"old-1", "old-2"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"color": "red"}}}
		if _, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, err := w.dynamic.Resource(widgetResource).Namespace(namespace).Create(ctx, widget("old", "red"),
		metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return expect.Until(ctx, func() error {
		for _, path := range []string{
			"/api/v1/namespaces/" + namespace + "/configmaps/old-2",
			"/apis/example.com/v1/namespaces/" + namespace + "/widgets/old",
		} {
			for _, c := range w.columns() {
				if a := c.send(ctx, request{Method: http.MethodGet, URI: path}); a.err != nil ||
					a.code != http.StatusOK {
					return fmt.Errorf("%s: %d %w", path, a.code, a.err)
				}
			}
		}
		return nil
	})
}

func widget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"color": color}},
		"spec":     map[string]any{"color": color},
	}}
}

// scene makes changes in a namespace: objects are created, changed, begin and stop
// matching selectors, and are deleted.
func (w *comparedCluster) scene(ctx context.Context, namespace string) error {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	pods := w.client.CoreV1().Pods(namespace)
	widgets := w.dynamic.Resource(widgetResource).Namespace(namespace)
	patch := func(name, body string) func() error {
		return func() error {
			_, err := maps.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		}
	}
	create := func(name string, labels map[string]string, finalizers ...string) func() error {
		return func() error {
			m := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: finalizers},
				Data:       map[string]string{"n": "0"},
			}
			_, err := maps.Create(ctx, m, metav1.CreateOptions{})
			return err
		}
	}
	remove := func(name string) func() error {
		return func() error { return maps.Delete(ctx, name, metav1.DeleteOptions{}) }
	}
	podStatus := func(body string) func() error {
		return func() error {
			_, err := pods.Patch(ctx, "mover", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
			return err
		}
	}
	widgetPatch := func(name, body string, sub ...string) func() error {
		return func() error {
			_, err := widgets.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	steps := []func() error{
		create("alpha", map[string]string{"color": "red"}),
		create("beta", nil),
		patch("alpha", `{"data":{"n":"1"}}`),
		patch("alpha", `{"metadata":{"labels":{"color":"blue"}}}`),
		patch("alpha", `{"data":{"n":"2"}}`),
		patch("alpha", `{"metadata":{"labels":{"color":null}}}`),
		patch("beta", `{"metadata":{"labels":{"color":"red"}}}`),
		patch("alpha", `{"metadata":{"labels":{"color":"red"}}}`),
		patch("old-1", `{"metadata":{"labels":{"color":"green"}}}`),
		patch("beta", `{"data":{"n":"2"}}`),
		remove("beta"),
		create("beta", map[string]string{"color": "blue"}),
		create("gamma", map[string]string{"color": "red"}, "example.com/wait"),
		remove("gamma"),
		patch("gamma", `{"metadata":{"finalizers":null}}`),
		remove("old-2"),
		func() error {
			_, err := pods.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "mover", Labels: map[string]string{"app": "mover"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "main", Image: "registry.example/mover"}},
				},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			return pods.Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "mover"},
				Target:     corev1.ObjectReference{Kind: "Node", Name: "node-0"},
			}, metav1.CreateOptions{})
		},
		podStatus(`{"status":{"phase":"Running","podIP":"10.1.2.3","startTime":"2026-01-01T00:00:00Z"}}`),
		podStatus(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`),
		podStatus(`{"status":{"phase":"Failed","reason":"Evicted"}}`),
		func() error {
			now := int64(0)
			return pods.Delete(ctx, "mover", metav1.DeleteOptions{GracePeriodSeconds: &now})
		},
		func() error {
			_, err := widgets.Create(ctx, widget("new", "green"), metav1.CreateOptions{})
			return err
		},
		widgetPatch("new", `{"spec":{"color":"red"}}`),
		widgetPatch("new", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status"),
		widgetPatch("old", `{"spec":{"color":"blue"},"metadata":{"labels":{"color":"blue"}}}`),
		func() error { return widgets.Delete(ctx, "new", metav1.DeleteOptions{}) },
		func() error {
			_, err := w.client.CoreV1().Secrets(namespace).Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := w.client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Name: "happened"}, InvolvedObject: corev1.ObjectReference{
					Kind: "ConfigMap", Namespace: namespace, Name: "alpha",
				}, Reason: "Happened",
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := w.dynamic.Resource(planetResource).Patch(ctx, "mars", types.MergePatchType,
				[]byte(`{"spec":{"seen":"`+namespace+`"}}`), metav1.PatchOptions{})
			return err
		},
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}
