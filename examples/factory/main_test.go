// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_withoutCluster(t *testing.T) {
	programtest.Retries(t, "", func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, options{namespace: "default"})
	})
}

func TestNamed(t *testing.T) {
	r := kube.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Kind:                 "Deployment", Singular: "deployment", ShortNames: []string{"deploy"},
	}
	for _, name := range []string{"deployments", "deployments.apps", "deployment", "deploy", "Deployment"} {
		if !named(r, name) {
			t.Errorf("%s does not find %s", name, r.GroupResource())
		}
	}
	for _, name := range []string{"", "deployments.extensions", "depl"} {
		if named(r, name) {
			t.Errorf("%q finds %s", name, r.GroupResource())
		}
	}
}

func TestRun_refuses(t *testing.T) {
	for want, o := range map[string]options{
		"need -all": {resource: "pods"},
		"exclude":   {all: true, byHand: true},
		"selector":  {all: true, resource: "pods", selector: "=="},
	} {
		if err := run(t.Context(), io.Discard, nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
