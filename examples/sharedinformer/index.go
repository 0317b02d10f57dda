// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
)

// serveIndex indexes pods by their label app, and serves the index over HTTP until ctx ends:
//
//	GET /?app=nettool   the keys of the pods with app=nettool
//	GET /pods           all pods, complete
//
// It shows how an index and an HTTP handler work together. Package query has a handler for
// all such queries; examples/gin uses it.
func serveIndex(
	ctx context.Context, pods *watershed.Informer[*corev1.Pod], address string, say func(line string),
) error {
	byApp := index(pods)
	select {
	case <-pods.Synced(): // responses before this would be wrong
		return serve(ctx, address, handler(pods, byApp), say)
	case <-ctx.Done():
		return nil
	}
}

// index indexes the pods by their label app. Pods without it are not in the index.
func index(pods *watershed.Informer[*corev1.Pod]) *watershed.Index[*corev1.Pod, string] {
	return watershed.IndexBy(pods, func(pod *corev1.Pod) []string {
		if app, ok := pod.Labels["app"]; ok {
			return []string{app}
		}
		return nil
	})
}

// handler serves requests from the copy, without requests to the API server.
func handler(pods *watershed.Informer[*corev1.Pod], byApp *watershed.Index[*corev1.Pod, string]) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		app := r.URL.Query().Get("app")
		if app == "" {
			http.Error(w, "which app? /?app=nettool", http.StatusBadRequest)
			return
		}
		answer(w, slices.AppendSeq([]string{}, byApp.Keys(app)))
	})
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		all := []*corev1.Pod{}
		for _, pod := range pods.All() {
			all = append(all, pod)
		}
		answer(w, all)
	})
	return mux
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client may have disconnected
}

// serve serves HTTP at the address until ctx ends.
func serve(ctx context.Context, address string, h http.Handler, say func(line string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	say("answering at http://" + listener.Addr().String() + "/?app=nettool")
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Requests in progress are completed, if that does not take long.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err = server.Shutdown(grace)
	<-served // http.ErrServerClosed
	return err
}
