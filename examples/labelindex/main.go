// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command labelindex indexes pods by their label app, and serves the index over HTTP:
//
//	GET /?app=nettool   the keys of the pods with app=nettool
//	GET /pods           all pods, complete
//
// It shows how an index and a handler work together. Package query has a handler for
// all such queries; examples/gin uses it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

type options struct {
	namespace, listen string
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:4000", "the `address` to answer at")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	// A label can be read from a pod's bytes. The pods are therefore kept as bytes, and
	// none is decoded for the index.
	pods, err := watershed.New[*wire.Object](cluster, &watershed.Options[*wire.Object]{
		Resource:  corev1.SchemeGroupVersion.WithResource("pods"),
		Namespace: o.namespace,
	})
	if err != nil {
		return err
	}
	byApp := index(pods)

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = pods.Run(ctx)
	})
	serveErr := func() error {
		defer wg.Wait()
		defer cancel()
		select {
		case <-pods.Synced(): // responses before this would be wrong
			return serve(ctx, out, o.listen, handler(pods, byApp))
		case <-ctx.Done():
			return nil
		}
	}()
	return errors.Join(serveErr, runErr)
}

// index indexes the pods by their label app. Pods without it are not in the index.
func index(pods *watershed.Informer[*wire.Object]) *watershed.Index[*wire.Object, string] {
	return watershed.IndexBy(pods, func(pod *wire.Object) []string {
		if app, ok := pod.Label("app"); ok {
			return []string{app}
		}
		return nil
	})
}

// handler serves requests from the copy, without requests to the API server.
func handler(pods *watershed.Informer[*wire.Object], byApp *watershed.Index[*wire.Object, string]) http.Handler {
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
		for _, o := range pods.All() {
			pod, err := wire.Decode[*corev1.Pod](o)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
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
func serve(ctx context.Context, out io.Writer, address string, h http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(out, "answering at http://%s/?app=nettool\n", listener.Addr())
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
