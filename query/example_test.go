// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/query"
	"github.com/watershed-project/watershed/wire"
)

// byApp is an index function. It reads the label from the bytes of the object.
func byApp(o *wire.Object) []string {
	app, _ := o.Label("app")
	return []string{app}
}

// A program serves the objects of its factory, next to its own routes and behind its own
// access control.
func ExampleNewFactory() {
	server := miniature.New(pod("shop", "cart", "web"), pod("shop", "db", "mysql"), pod("shop", "search", "web"))
	defer server.Close()
	cluster, _ := kube.FromConfig(server.Config(), nil) // or kube.FromContext("")
	defer cluster.CloseIdleConnections()

	factory := watershed.NewFactory(cluster, &watershed.FactoryOptions{Logger: slog.New(slog.DiscardHandler)})
	h, err := query.NewFactory(factory, query.Resources{
		corev1.SchemeGroupVersion.WithResource("pods"): {"app": byApp},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = factory.Run(ctx) })
	defer running.Wait()
	defer stop()
	_ = factory.WaitForSync(ctx) // before that the handler responds with 503

	mux := http.NewServeMux()
	mux.Handle("/query/", authenticated(http.StripPrefix("/query", h)))

	web := httptest.NewServer(mux)
	defer web.Close()
	for _, path := range []string{
		"/query/pods?index=app&value=web&keys=true",
		"/query/pods?namespace=shop&labelSelector=app%3Dweb&keys=true&limit=1",
		"/query/pods/shop/db",
		"/query/secrets",
	} {
		fmt.Print(read(web, path))
	}
	// Output:
	// {"keys":["shop/cart","shop/search"]}
	// {"keys":["shop/cart"],"continue":"shop/cart"}
	// {"kind":"Pod","apiVersion":"v1","metadata":{"name":"db","namespace":"shop","resourceVersion":"2","labels":{"app":"mysql"}},"spec":{"containers":null,"nodeName":"node-1"},"status":{}}
	// {"error":"resource \"secrets\" cannot be queried here, only pods"}
}

// authenticated is where the program checks its users.
func authenticated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// read returns the body of a response.
func read(server *httptest.Server, path string) string {
	r, err := http.NewRequest(http.MethodGet, server.URL+path, http.NoBody)
	if err != nil {
		return err.Error()
	}
	r.SetBasicAuth("user", "secret")
	resp, err := server.Client().Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// The keys of a fleet begin with the name of the cluster.
func ExampleNewFleet() {
	eu := miniature.New(pod("shop", "cart", "web"), pod("shop", "db", "mysql"))
	defer eu.Close()
	us := miniature.New(pod("shop", "cart", "web"))
	defer us.Close()
	clusters, _ := directory.NewStatic(fleet.Entry{Name: "eu", Config: eu.Config()},
		fleet.Entry{Name: "us", Config: us.Config()})
	f, _ := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, Logger: slog.New(slog.DiscardHandler)})
	h, _ := query.NewFleet(f, query.Resources{
		corev1.SchemeGroupVersion.WithResource("pods"): {"app": byApp},
	}, nil)
	defer h.Close()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	defer running.Wait()
	defer stop()
	_ = f.WaitForSync(ctx)

	web := httptest.NewServer(h)
	defer web.Close()
	fmt.Print(read(web, "/pods?index=app&value=web&keys=true"))
	fmt.Print(read(web, "/pods?cluster=eu&keys=true"))
	// Output:
	// {"keys":["eu/shop/cart","us/shop/cart"]}
	// {"keys":["eu/shop/cart","eu/shop/db"]}
}
