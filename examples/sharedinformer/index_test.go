// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// still is a source that never changes.
type still []*wire.Object

func (s still) List(_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error) (reflector.Page, error) {
	for _, o := range s {
		if err := each(o); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: "1"}, nil
}

func (s still) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	if opts.InitialEvents {
		return nil, &reflector.Error{Reason: reflector.NotSupported}
	}
	return stillWatch{ctx}, nil
}

func (s still) Served(context.Context) (bool, error) { return true, nil }

type stillWatch struct{ ctx context.Context }

func (w stillWatch) Next() (reflector.Event[*wire.Object], error) {
	<-w.ctx.Done()
	return reflector.Event[*wire.Object]{}, w.ctx.Err()
}

func (w stillWatch) Close() error { return nil }

func podOf(t *testing.T, name, app string) *wire.Object {
	t.Helper()
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
	}
	if app != "" {
		pod.Labels = map[string]string{"app": app}
	}
	o, err := wire.Encode(pod, wire.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestHandler(t *testing.T) {
	pods := watershed.FromSource[*corev1.Pod](still{
		podOf(t, "a", "nettool"), podOf(t, "b", ""), podOf(t, "c", "nettool"),
	}, nil)
	byApp := index(pods)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- pods.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-pods.Synced()
	h := handler(pods, byApp)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for path, want := range map[string]string{
		"/?app=nettool": `["default/a","default/c"]`,
		"/?app=web":     `[]`,
	} {
		if code, body := ask(path); code != http.StatusOK || body != want {
			t.Errorf("GET %s: %d %s, want %s", path, code, body, want)
		}
	}
	for path, want := range map[string]int{
		"/": http.StatusBadRequest, "/?app=": http.StatusBadRequest, "/elsewhere": http.StatusNotFound,
	} {
		if code, body := ask(path); code != want {
			t.Errorf("GET %s: %d %s, want %d", path, code, body, want)
		}
	}
	_, body := ask("/pods")
	var all []corev1.Pod
	if err := json.Unmarshal([]byte(body), &all); err != nil || len(all) != 3 || all[1].Name != "b" ||
		all[1].Kind != "Pod" {
		t.Errorf("GET /pods: %v: %s", err, body)
	}
}
