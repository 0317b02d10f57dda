// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/replica"
)

// A program embeds the replica as an http.Handler, beside paths of its own.
func Example() {
	cluster := miniature.New(miniature.Pod("shop", "cart", "node-7"), miniature.Pod("shop", "search", "node-8"))
	defer cluster.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	clusters, _ := directory.NewStatic(fleet.Entry{Name: "eu", Config: cluster.Config()})
	f, _ := fleet.New(clusters, &fleet.Options{
		Resources: []string{"pods"}, History: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	reads, _ := replica.New(f, nil)
	go func() { _ = f.Run(ctx) }()
	go func() { _ = reads.Run(ctx) }()
	_ = f.WaitForSync(ctx)
	mux := http.NewServeMux()
	mux.Handle("/", reads)
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	server := httptest.NewServer(mux)
	defer server.Close()
	resp, err := server.Client().Get(server.URL +
		"/clusters/eu/api/v1/namespaces/shop/pods?fieldSelector=spec.nodeName%3Dnode-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var list corev1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		fmt.Println(err)
		return
	}
	for _, pod := range list.Items {
		fmt.Println(pod.Name, "on", pod.Spec.NodeName)
	}
	// Output: cart on node-7
}

// A hook decides which clusters a caller sees.
func Example_authorize() {
	eu, us := miniature.New(miniature.Pod("shop", "cart", "node-7")),
		miniature.New(miniature.Pod("shop", "search", "node-8"))
	defer eu.Close()
	defer us.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	clusters, _ := directory.NewStatic(fleet.Entry{Name: "eu", Config: eu.Config()},
		fleet.Entry{Name: "us", Config: us.Config()})
	f, _ := fleet.New(clusters, &fleet.Options{
		Resources: []string{"pods"}, History: 64 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	reads, _ := replica.New(f,
		&replica.Options{Authorize: func(r *http.Request, q *replica.Request) (*replica.Access, error) {
			user, password, _ := r.BasicAuth()
			if user != "ann" || password != "secret" || q.Cluster != "" && q.Cluster != "eu" {
				return nil, apierrors.NewUnauthorized("Unauthorized")
			}
			return &replica.Access{Caller: user, CanSee: func(m *fleet.Member) bool { return m.Name() == "eu" }}, nil
		}})
	go func() { _ = f.Run(ctx) }()
	go func() { _ = reads.Run(ctx) }()
	_ = f.WaitForSync(ctx)

	for _, path := range []string{"/fleet/api/v1/pods", "/clusters/us/api/v1/pods"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.SetBasicAuth("ann", "secret")
		w := httptest.NewRecorder()
		reads.ServeHTTP(w, r)
		var list corev1.PodList
		_ = json.Unmarshal(w.Body.Bytes(), &list)
		fmt.Println(path, w.Code, len(list.Items), w.Header().Get("Warning"))
	}
	// Output:
	// /fleet/api/v1/pods 200 1 299 - "1 cluster is left out: you may not read this resource there"
	// /clusters/us/api/v1/pods 401 0
}
