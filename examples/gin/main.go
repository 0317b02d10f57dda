// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command gin serves the objects of a factory with gin: pods by namespace, label and
// index, and deployments, from package query. It shows how a handler of net/http becomes
// a route, and where middleware goes.
//
//	GET /query/pods?index=app&value=web&keys=true   the keys of the pods with app=web
//	GET /query/pods?namespace=default               the pods of a namespace
//	GET /query/deployments.apps/default/web         one deployment
//	GET /status                                     a route of the program's own
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/query"
	"github.com/watershed-project/watershed/wire"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4000", "the `address` to answer at")
	token := flag.String("token", "", "a `token` that requests must have, as Authorization: Bearer (default: none)")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, *listen, *token)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, listen, token string) error {
	factory := watershed.NewFactory(cluster, nil)
	// Clients can query these resources and no others.
	objects, err := query.NewFactory(factory, query.Resources{
		corev1.SchemeGroupVersion.WithResource("pods"):        {"app": byApp, "node": byNode},
		appsv1.SchemeGroupVersion.WithResource("deployments"): {"app": byApp},
	}, nil)
	if err != nil {
		return err
	}
	defer objects.Close()

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = factory.Run(ctx)
	})
	serveErr := serve(ctx, out, listen, router(factory, objects, token))
	cancel()
	wg.Wait()
	return errors.Join(serveErr, runErr)
}

// byApp is an index function: it returns the values to find an object by. A label can be
// read from the bytes of the object.
func byApp(o *wire.Object) []string {
	if app, ok := o.Label("app"); ok {
		return []string{app}
	}
	return nil
}

// byNode decodes the pod, because the node is not in its metadata.
func byNode(o *wire.Object) []string {
	pod, err := wire.Decode[*corev1.Pod](o)
	if err != nil {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// router has the routes of the program.
func router(factory *watershed.Factory, objects http.Handler, token string) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery(), authenticate(token))
	r.Any("/query/*path", gin.WrapH(http.StripPrefix("/query", objects)))
	r.GET("/status", func(c *gin.Context) {
		status := map[string]string{}
		for resource, all := range factory.Status() {
			for _, s := range all {
				status[resource.GroupResource().String()] = s.String()
			}
		}
		c.JSON(http.StatusOK, status)
	})
	return r
}

// authenticate is the place for access control: package query has none.
func authenticate(token string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if token != "" && c.GetHeader("Authorization") != "Bearer "+token {
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "the token is missing or wrong"})
		}
	}
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
	fmt.Fprintf(out, "answering at http://%s/query/pods?index=app&value=web&keys=true\n", listener.Addr())
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
