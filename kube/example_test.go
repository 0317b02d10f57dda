// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// A cluster can be listed and discovered without an informer. Objects arrive as bytes
// with their identity and are decoded on request.
func ExampleCluster_List() {
	server := miniature.New(miniature.Pod("shop", "cart", "node-7"), miniature.Pod("shop", "search", "node-8"))
	defer server.Close()

	prod, err := kube.FromConfig(server.Config(), &kube.Options{Name: "prod"}) // or kube.FromContext("prod")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer prod.CloseIdleConnections()
	ctx := context.Background()
	pods, err := prod.Resolve(ctx, schema.GroupVersionKind{Kind: "Pod"}) // in the version that the server prefers
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pods.Resource, pods.Namespaced)

	version, err := prod.List(ctx, kube.Query{Resource: pods.GroupVersionResource}, func(o *wire.Object) error {
		pod, err := wire.Decode[*corev1.Pod](o)
		if err != nil {
			return err
		}
		fmt.Println(o.Key(), o.Version(), pod.Spec.NodeName)
		return nil
	})
	fmt.Println("version", version, err)
	// Output:
	// pods true
	// shop/cart 1 node-7
	// shop/search 2 node-8
	// version 2 <nil>
}
