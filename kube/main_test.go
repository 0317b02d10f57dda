// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"go.uber.org/goleak"
	"golang.org/x/mod/semver"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// widget is a type that a program has registered with client-go's scheme, as many
// programs do with their own types.
type widget struct{ corev1.ConfigMap }

func TestMain(m *testing.M) {
	scheme.Scheme.AddKnownTypes(nonsense.GroupVersion(), &widget{})
	goleak.VerifyTestMain(m)
}

var (
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	nonsense    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "nonsenses"}
)

// patience is the time limit for anything that should be immediate, on a machine that is
// busy with other tests.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open returns the cluster of cfg for the duration of the test.
func open(t *testing.T, cfg *rest.Config) *kube.Cluster {
	t.Helper()
	c, err := kube.FromConfig(cfg, &kube.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func sourceOf(t *testing.T, c *kube.Cluster, q kube.Query) *kube.Source {
	t.Helper()
	s, err := c.Source(q)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// listAll lists all objects on one page.
func listAll(
	ctx context.Context, s *kube.Source, opts reflector.ListOptions,
) (map[string]*wire.Object, reflector.Page, error) {
	objects := map[string]*wire.Object{}
	page, err := s.List(ctx, opts, func(o *wire.Object) error {
		if objects[o.Key()] != nil {
			return fmt.Errorf("%s comes twice", o)
		}
		objects[o.Key()] = o
		return nil
	})
	if err == nil && len(page.Skipped) > 0 {
		err = fmt.Errorf("objects were skipped: %v", page.Skipped)
	}
	return objects, page, err
}

// watchInitial reads a watch up to the end of the initial events and returns their
// objects and their version.
func watchInitial(w reflector.Watch[*wire.Object]) (map[string]*wire.Object, string, error) {
	objects := map[string]*wire.Object{}
	for {
		e, err := w.Next()
		switch {
		case err != nil:
			return nil, "", err
		case e.InitialEnd && e.Type == delta.Bookmark && e.Object == nil && e.Version != "":
			return objects, e.Version, nil
		case e.Type != delta.Added || e.Object == nil || e.InitialEnd:
			return nil, "", fmt.Errorf("%+v is no initial event", e)
		}
		objects[e.Object.Key()] = e.Object
	}
}

// beginWatch starts a watch for the duration of the test.
func beginWatch(
	ctx context.Context, t *testing.T, s *kube.Source, opts reflector.WatchOptions,
) reflector.Watch[*wire.Object] {
	t.Helper()
	w, err := s.Watch(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// next returns the next event that is not a bookmark.
func next(t *testing.T, w reflector.Watch[*wire.Object]) reflector.Event[*wire.Object] {
	t.Helper()
	for {
		e, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != delta.Bookmark {
			return e
		}
	}
}

// wantEvent checks the type and the key of the next event.
func wantEvent(t *testing.T, w reflector.Watch[*wire.Object], want delta.Type, key string) *wire.Object {
	t.Helper()
	e := next(t, w)
	if e.Type != want || e.Object.Key() != key || e.Version == "" || e.Version != e.Object.ResourceVersion() {
		t.Fatalf("event %d %s at %q, want %d %s", e.Type, e.Object, e.Version, want, key)
	}
	return e.Object
}

// wantReason checks the reason of an error, and returns its RetryAfter.
func wantReason(t *testing.T, what string, err error, want reflector.Reason) time.Duration {
	t.Helper()
	var e *reflector.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, want an error with reason %q", what, err, want)
		return 0
	}
	if e.Reason != want {
		t.Errorf("%s: %v has reason %q, want %q", what, err, e.Reason, want)
	}
	return e.RetryAfter
}

// create creates objects.
func create(ctx context.Context, t *testing.T, k *kubetest.Cluster, manifest string) {
	t.Helper()
	if err := k.CreateManifest(ctx, manifest); err != nil {
		t.Fatal(err)
	}
}

// needStreams skips a test of initial events if the server does not support them by
// default.
func needStreams(t *testing.T) {
	t.Helper()
	if v := os.Getenv(binaries.VersionVariable); v != "" && semver.Compare(v, "v1.34.0") < 0 {
		t.Skipf("Kubernetes %s does not stream its state", v)
	}
}
