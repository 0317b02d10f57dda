// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

// write applies, updates, patches and deletes a ConfigMap through a dynamic client of the
// cluster.
func write(ctx context.Context, cluster *kube.Cluster, namespace, name string) error {
	client, err := dynamic.NewForConfig(cluster.Config()) // or kubernetes.NewForConfig, for typed objects
	if err != nil {
		return err
	}
	settings := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)

	obj, err := settings.Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		"data": map[string]any{"colour": "red"},
	}}, metav1.ApplyOptions{FieldManager: "example", Force: true}) // server-side; creates the object if necessary
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(obj.Object, "green", "data", "colour"); err != nil {
		return err
	}
	// The object has the resourceVersion that it was read with, so a concurrent change is a
	// conflict. An object from an informer must be copied before it is modified.
	if _, err = settings.Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err = settings.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"size":"9"}}`),
		metav1.PatchOptions{}); err != nil {
		return err
	}
	return settings.Delete(ctx, name, metav1.DeleteOptions{})
}

// keeper is an API server for one object. It prints the writes.
type keeper struct{ object []byte }

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Println(r.Method, r.URL, r.Header.Get("Content-Type"))
	reply := k.object
	switch {
	case r.Method == http.MethodDelete:
		reply, _ = json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusSuccess,
		})
	case r.Header.Get("Content-Type") != string(types.MergePatchType):
		k.object, reply = body, body
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply)
}

// A Cluster reads. A program that also writes makes client-go's dynamic client, or a
// clientset, from the same configuration.
func ExampleCluster_Config() {
	server := httptest.NewServer(new(keeper))
	defer server.Close()
	prod, err := kube.FromConfig(&rest.Config{Host: server.URL}, nil) // or kube.FromContext("prod")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer prod.CloseIdleConnections()

	if err := write(context.Background(), prod, "shop", "cart"); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PATCH /api/v1/namespaces/shop/configmaps/cart?fieldManager=example&force=true application/apply-patch+yaml
	// PUT /api/v1/namespaces/shop/configmaps/cart application/json
	// PATCH /api/v1/namespaces/shop/configmaps/cart application/merge-patch+json
	// DELETE /api/v1/namespaces/shop/configmaps/cart application/json
}
