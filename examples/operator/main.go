// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command operator is a typical kubebuilder operator: a custom resource, a reconciler
// that owns Deployments, a field index, and Secrets and Pods read cluster-wide from the
// manager's cache. With -packed that cache is Watershed's, and with -direct as well it
// takes bytes from the connection: one line each.
// With -read-from the cache reads from another server than the operator writes to: a
// replica that watershed serves.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/metrics"
)

func main() {
	packed := flag.Bool("packed", false, "keep the cache in Watershed")
	direct := flag.Bool("direct", false, "with -packed: read bytes instead of decoded objects")
	readFrom := flag.String("read-from", "",
		"a kubeconfig to read from, as watershed kubeconfig prints it; writes go to the other")
	metricsAddress := flag.String("metrics", "0", "address for metrics")
	pprofAddress := flag.String("pprof", "", "address for profiles")
	flag.Parse() // controller-runtime adds -kubeconfig
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := run(*packed, *direct, *readFrom, *metricsAddress, *pprofAddress); err != nil {
		fmt.Fprintf(os.Stderr, "operator: %v\n", err)
		os.Exit(1)
	}
}

func run(packed, direct bool, readFrom, metricsAddress, pprofAddress string) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := addSites(scheme); err != nil {
		return err
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	var caching cache.Options
	if packed {
		// This is the first line. The report is for the metrics: without them, the argument is nil.
		report := &watershed.Report{}
		caching.NewInformer = compat.NewInformer(&compat.Options{Report: report})
		crmetrics.Registry.MustRegister(metrics.NewCollector(report))
	}
	reads, newCache := cfg, cache.New
	if readFrom != "" {
		if reads, err = clientcmd.BuildConfigFromFlags("", readFrom); err != nil {
			return fmt.Errorf("read from: %w", err)
		}
		newCache = readsFrom(reads)
	}
	if direct {
		reads.Wrap(compat.Tap) // the second line
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:           scheme,
		Cache:            caching,
		NewCache:         newCache,
		Metrics:          metricsserver.Options{BindAddress: metricsAddress},
		PprofBindAddress: pprofAddress,
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	r := &siteReconciler{client: mgr.GetClient()}
	if err := r.setUp(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// readsFrom returns a constructor of a manager's cache that reads from another server
// than the manager writes to.
func readsFrom(cfg *rest.Config) cache.NewCacheFunc {
	return func(_ *rest.Config, opts cache.Options) (cache.Cache, error) {
		opts.HTTPClient, opts.Mapper = nil, nil // these are for the other server
		return cache.New(cfg, opts)
	}
}
