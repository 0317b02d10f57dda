// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

type options struct {
	namespace, listen string
}

// phase is read from the bytes of a pod, which need not be decoded for it.
var phase = wire.NewPath("status.phase")

// runLive runs the informer on the pods of a cluster until ctx ends, and serves its
// index.
func runLive(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	source, err := cluster.Source(kube.Query{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: o.namespace,
	})
	if err != nil {
		return err
	}
	// Objects have versions, so the store can recognize an unchanged one in a list.
	pods := newInformer((*wire.Object).Key, &store.Options[*wire.Object]{Same: wire.Same})
	byApp := store.NewIndex(pods.store, "app", func(pod *wire.Object) ([]string, error) {
		if app, ok := pod.Label("app"); ok {
			return []string{app}, nil
		}
		return nil, nil
	})
	// Handlers run concurrently and must guard what they share.
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, line)
	}
	for _, name := range []string{"first", "second"} {
		pods.handle(fanout.Everything(), func(c store.Change[*wire.Object]) {
			say(fmt.Sprintf("%-6s %s", name, event(c)))
		})
	}

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = pods.run(ctx, func(ctx context.Context, fifo *delta.FIFO[*wire.Object]) error {
			return reflector.New(source, fifo, nil).Run(ctx) // lists, then watches, until ctx ends
		})
	})
	serveErr := func() error {
		defer wg.Wait()
		defer cancel()
		select {
		case <-pods.fifo.Synced(): // the first list is stored; responses before this would be wrong
			return serve(ctx, say, o.listen, func(app string) []string {
				return slices.AppendSeq([]string{}, byApp.Keys(pods.store.Snapshot(), app))
			})
		case <-ctx.Done():
			return nil
		}
	}()
	return errors.Join(serveErr, runErr)
}

// event describes a change in the words of a handler.
func event(c store.Change[*wire.Object]) string {
	name := c.New.Name()
	now, _ := c.New.Field(phase)
	switch c.Type {
	case delta.Added:
		return fmt.Sprintf("OnAdd: %s %s", name, now)
	case delta.Updated:
		old, _ := c.Old.Field(phase)
		return fmt.Sprintf("OnUpdate: %s %s to %s", name, old, now)
	case delta.Deleted:
		return fmt.Sprintf("OnDelete: %s %s", name, now)
	default:
		return fmt.Sprintf("%s: %s", c.Type, name) // only with resyncs, which this program does not have
	}
}

// serve answers /?app=NAME with the keys of the pods that have the label, until ctx ends.
func serve(ctx context.Context, say func(line string), address string, keys func(app string) []string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(keys(r.URL.Query().Get("app"))) // the client may have disconnected
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	say(fmt.Sprintf("answering at http://%s/?app=nettool", listener.Addr()))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
