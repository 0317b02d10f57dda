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
	f, _ := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, History: 64 << 20, Logger: slog.New(slog.DiscardHandler)})
	reads, _ := replica.New(f, nil)
	go func() { _ = f.Run(ctx) }()
	go func() { _ = reads.Run(ctx) }()
	_ = f.WaitForSync(ctx)
	mux := http.NewServeMux()
	mux.Handle("/", reads)
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	server := httptest.NewServer(mux)
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/clusters/eu/api/v1/namespaces/shop/pods?fieldSelector=spec.nodeName%3Dnode-7")
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
