// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/examples/internal/programtest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_withoutCluster(t *testing.T) {
	for program := range programs {
		for with := range packages {
			t.Run(program+" with "+with, func(t *testing.T) {
				want := ""
				if program == "factory" {
					want = "ConfigMap: []\nPod: []\n" // when it was interrupted
				}
				programtest.Retries(t, want, func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
					return run(ctx, out, cluster, options{program: program, with: with})
				})
			})
		}
	}
}

func TestRun_unknownNames(t *testing.T) {
	cluster, err := kube.FromConfig(&rest.Config{Host: "http://127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]options{
		`program "x"`: {program: "x", with: "compat"},
		`package "x"`: {program: "shared", with: "x"},
	} {
		if err := run(t.Context(), io.Discard, cluster, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
