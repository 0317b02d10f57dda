// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Kubernetes 1.37 has the same functions, macros and overloads, and the functions of the authorizer.
func TestLanguage_isThatOfKubernetes(t *testing.T) {
	kubernetes, err := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := language()
	if err != nil {
		t.Fatal(err)
	}
	authorization := []string{
		"allowed", "authorizer", "check", "error", "errored", "fieldSelector", "group", "labelSelector",
		"name", "namespace", "path", "reason", "resource", "serviceAccount", "subresource",
	}
	theirs := kubernetes.Functions()
	for name, f := range theirs {
		if own := ours.Functions()[name]; !slices.Contains(authorization, name) &&
			(own == nil || len(own.OverloadDecls()) != len(f.OverloadDecls())) {
			t.Errorf("function %s is not that of Kubernetes", name)
		}
	}
	for name := range ours.Functions() {
		if theirs[name] == nil || slices.Contains(authorization, name) {
			t.Errorf("Kubernetes has no function %s", name)
		}
	}
	macros := func(e *cel.Env) (keys []string) {
		for _, m := range e.Macros() {
			keys = append(keys, m.MacroKey())
		}
		slices.Sort(keys)
		return keys
	}
	if a, b := macros(ours), macros(kubernetes); !slices.Equal(a, b) {
		t.Errorf("the macros are %q, those of Kubernetes %q", a, b)
	}
}
