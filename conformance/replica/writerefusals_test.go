// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/watershed-project/watershed/internal/expect"
)

// certificateUser is the user of the context certificate.
const certificateUser = "jane"

// readsOfRefused are commands of callers whose writes are refused.
var readsOfRefused = []string{
	"get cm settings -o yaml", "get cm", "get pods -o wide", "get ns {ns}",
	"get --raw /api/v1/namespaces/{ns}/configmaps/settings", "get deploy", "explain pods",
	"auth can-i delete configmaps",
}

// refusedWrites are commands that the API server accepts.
var refusedWrites = []string{
	"create cm other --dry-run=server", "apply -f {dir}/settings-2.yaml --dry-run=server",
	"apply --server-side -f {dir}/other.yaml --dry-run=server",
	`patch cm settings -p '{"data":{"a":"b"}}' --dry-run=server`,
	"label cm settings a=b --dry-run=server", "replace -f {dir}/settings.yaml --dry-run=server",
	"delete cm settings --dry-run=server", "delete cm --all --dry-run=server",
	"create deployment web --image=image --dry-run=server",
}

// testRefusals writes where the replica does not pass requests on: with a client certificate,
// as the owner, and below /fleet. The reads of the same callers work.
func (w *writing) testRefusals(t *testing.T) {
	all := rbacv1.PolicyRule{
		APIGroups: []string{"", "apps"},
		Resources: []string{"configmaps", "pods", "pods/log", "namespaces", "deployments"},
		Verbs:     []string{"*"},
	}
	expect.NoError(t, w.cluster.Grant(t.Context(), certificateUser, "", all))
	direct, passed := w.access()
	origin, replica := w.newSide(t, direct, "refusals"), w.newSide(t, passed, "refusals")
	for _, line := range []string{
		"create ns {ns}", "create -f {dir}/settings.yaml", "run lone --image=image",
		"wait pod/lone --for=condition=Ready --timeout=60s",
	} {
		if o := origin.runOnce(t.Context(), &step{program: "kubectl", args: line}); o.code != 0 {
			t.Fatal(o.stderr)
		}
	}
	for _, c := range []struct{ context, at, why string }{
		{
			"certificate", "certificate",
			"a client certificate cannot be passed on; use a token, or send the request there",
		},
		// The owner has the rights of the kubeconfig of the replica.
		{"owner", "writer", "the owner's token cannot be passed on; use your own credentials"},
	} {
		t.Run(c.context, func(t *testing.T) {
			compareReads(t, origin, replica, " --context "+c.at, " --context "+c.context)
			for _, line := range refusedWrites {
				if o := origin.runOnce(t.Context(), &step{
					program: "kubectl", args: line + " --context " + c.at,
				}); o.code != 0 {
					t.Errorf("kubectl %s at the API server: %s", line, o.stderr)
				}
				expectRefused(t, replica, line+" --context "+c.context,
					"this is a read replica, write to "+w.origin+": "+c.why)
			}
			expectRefused(t, replica, "logs lone --context "+c.context, "send the request to "+w.origin+": "+c.why)
		})
	}
	t.Run("fleet", func(t *testing.T) {
		at := w.process.Config()
		at.Host += "/fleet"
		testFleetRefusals(t, w.newSide(t, at, "refusals"))
	})
}

// compareReads runs reads at both sides until they print the same: the replica may be late.
func compareReads(t *testing.T, origin, replica *side, atOrigin, atReplica string) {
	t.Helper()
	for _, line := range readsOfRefused {
		expect.Eventually(t, settleTime, func() error {
			a := origin.runOnce(t.Context(), &step{program: "kubectl", args: line + atOrigin})
			b := replica.runOnce(t.Context(), &step{program: "kubectl", args: line + atReplica})
			if unlike := differ(a, b); unlike != "" || a.code != 0 {
				return &unlikeError{line, unlike + a.stderr}
			}
			return nil
		})
	}
}

// unlikeError is how the outputs of a command differ.
type unlikeError struct{ line, unlike string }

func (e *unlikeError) Error() string { return "kubectl " + e.line + "\n" + e.unlike }

// expectRefused checks that a command fails with a text.
func expectRefused(t *testing.T, s *side, line, text string) {
	t.Helper()
	if o := s.runOnce(t.Context(), &step{program: "kubectl", args: line}); o.code == 0 ||
		!strings.Contains(o.stderr, s.normal(text)) {
		t.Errorf("kubectl %s: %d %s%s, want %s", line, o.code, o.stdout, o.stderr, s.normal(text))
	}
}

// testFleetRefusals writes below /fleet, with the token of a user that may write.
func testFleetRefusals(t *testing.T, fleet *side) {
	for _, line := range []string{"get cm settings", "get cm", "get pods"} {
		if o := fleet.runOnce(t.Context(), &step{program: "kubectl", args: line}); o.code != 0 ||
			!strings.Contains(o.stdout, "one") {
			t.Errorf("kubectl %s: %d %s%s, want rows of cluster one", line, o.code, o.stdout, o.stderr)
		}
	}
	const which = "write to a single cluster, at /clusters/NAME"
	const known = "write to cluster one, at /clusters/one"
	for line, text := range map[string]string{
		"create cm other":                              which,
		"create ns other":                              which,
		"run other --image=x":                          which,
		"apply --server-side -f {dir}/other.yaml":      which,
		"apply --server-side -f {dir}/settings-2.yaml": known,
		"apply -f {dir}/settings-2.yaml":               known,
		`patch cm settings -p '{"data":{"a":"b"}}'`:    known,
		"label cm settings a=b":                        known,
		"delete cm settings":                           known,
		"delete pod lone --force":                      known,
		"replace -f {dir}/settings.yaml":               known,
		"replace --force -f {dir}/settings.yaml":       known,
		"delete cm -l app=web":                         known,
		"annotate pod lone a=b":                        known,
		"delete --raw /api/v1/namespaces/x/configmaps": which,
		"logs lone":       "send the request to cluster one, at /clusters/one",
		"exec lone -- ls": "send the request to cluster one, at /clusters/one",
		"get deploy web -n absent --subresource=status": "not found",
	} {
		expectRefused(t, fleet, line, text)
	}
	// None of them changed anything.
	if o := fleet.runOnce(t.Context(), &step{
		program: "kubectl", args: "get cm settings -o jsonpath={.data.color}",
	}); o.stdout != "before" {
		t.Errorf("color is %q %s", o.stdout, o.stderr)
	}
}
