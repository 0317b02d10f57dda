// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package remedy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// reasonsIn returns the string constants of a file.
func reasonsIn(t *testing.T, path string) (reasons []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			if v, ok := s.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
				text, _ := strconv.Unquote(v.Value)
				reasons = append(reasons, text)
			}
		}
	}
	return reasons
}

// TestFor_everyReason fails for a reason without a text of its own.
func TestFor_everyReason(t *testing.T) {
	reasons := append(reasonsIn(t, "../../../../fleet/internal/health/trouble.go"),
		reasonsIn(t, "../../../../fleet/internal/health/problem.go")...)
	if len(reasons) < 19 {
		t.Fatalf("found only %q", reasons)
	}
	for _, reason := range reasons {
		if texts[reason] == "" {
			t.Errorf("there is no remedy for %s", reason)
		}
		for _, about := range []Subject{
			{Program: "watershed"},
			{Program: "kubectl watershed", Cluster: "c", Context: "it's", User: "u", Resources: []string{"pods"}},
		} {
			if text := For(reason, about); strings.ContainsAny(text, "{}") || text == "" ||
				strings.Contains(text, "  ") {
				t.Errorf("%s: %q", reason, text)
			}
		}
	}
}

func TestFor(t *testing.T) {
	about := Subject{
		Program:   "watershed",
		Cluster:   "eu",
		Context:   "admin@eu",
		User:      "system:serviceaccount:ws:reader",
		Resources: []string{"pods", "secrets"},
	}
	want := "grant the rights as an administrator: watershed rbac --context admin@eu --service-account ws/reader | " +
		"kubectl --context ADMIN apply -f -; or leave the resources out: serve --except pods,secrets"
	if got := For("Forbidden", about); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	about.Kubeconfig = "/the clusters"
	for reason, want := range map[string]string{
		"Forbidden":    "watershed rbac --kubeconfig '/the clusters' --context admin@eu --service-account ws/reader |",
		"Unauthorized": "kubectl --kubeconfig '/the clusters' --context admin@eu auth whoami",
		"WrongHost":    "kubectl config --kubeconfig '/the clusters' set-cluster CLUSTER --tls-server-name NAME",
		"NameTaken":    "kubectl config --kubeconfig '/the clusters' rename-context admin@eu NAME",
	} {
		if got := For(reason, about); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	about.User, about.Context, about.Kubeconfig, about.Resources = "o'neil smith", "", "", strings.Split("abcdefgh", "")
	want = `grant the rights as an administrator: watershed rbac --kubeconfig FILE --user 'o'\''neil smith' | kubectl --context ADMIN apply -f -`
	if got := For("Forbidden", about); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := For("Unheard", about); got != "look at the log of the server, which has the whole error, and run: "+
		"watershed check --cluster eu" {
		t.Error(got)
	}
}
