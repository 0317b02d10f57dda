// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
)

// A fleet mirrors many clusters. Views read one resource of all of them.
func ExampleFleet() {
	eu := miniature.New(miniature.Pod("shop", "cart", "node-1"), miniature.Pod("shop", "search", "node-2"))
	defer eu.Close()
	us := miniature.New(miniature.Pod("shop", "cart", "node-1"))
	defer us.Close()

	clusters, err := directory.NewStatic( // or directory.NewKubeconfig(nil): every context of the kubeconfig
		fleet.Entry{Name: "eu", Config: eu.Config()}, fleet.Entry{Name: "us", Config: us.Config()})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		fmt.Println(err)
		return
	}
	byNode := fleet.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	if err := f.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	for key, p := range byNode.Get("node-1") {
		fmt.Println(key.Cluster, p.Name)
	}
	for c := range pods.Watch(ctx) {
		fmt.Println(c.Type, c.Key, c.Initial)
		if c.Key.Cluster == "us" && c.Initial {
			us.Put(miniature.Pod("shop", "payment", "node-1"))
		}
		if c.Type == watershed.Added && !c.Initial {
			break
		}
	}
	stop()
	running.Wait()
	// Output:
	// eu cart
	// us cart
	// Added eu/shop/cart true
	// Added eu/shop/search true
	// Added us/shop/cart true
	// Added us/shop/payment false
}
