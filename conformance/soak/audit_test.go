// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/watershed-project/watershed/internal/expect"
)

// audit is the audit log of an API server.
type audit struct{ path string }

// newAudit returns an audit log for a policy's rules, and the arguments of the API server that
// writes it.
func newAudit(t *testing.T, rules string) (log audit, args []string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	log.path = filepath.Join(dir, "audit.log")
	expect.NoError(t, os.WriteFile(policy,
		[]byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[`+rules+`],"omitStages":["RequestReceived"]}`),
		0o600))
	return log, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log.path, "--audit-log-maxsize=10000"}
}

// requests calls f with each request of a resource: a watch has an event at its beginning, and
// one at its end.
func (a audit) requests(t *testing.T, f func(*auditv1.Event)) {
	t.Helper()
	file, err := os.Open(a.path)
	expect.NoError(t, err)
	defer file.Close()
	lines, seen := bufio.NewScanner(file), map[types.UID]bool{}
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		expect.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		if e.ObjectRef != nil && !seen[e.AuditID] {
			seen[e.AuditID] = true
			f(&e)
		}
	}
	expect.NoError(t, lines.Err())
}

// lists returns how often clients that are not parts of the API server have read the state of
// a resource, and how many watches they began from a version. The metrics of an API server
// count a streamed list as a watch.
func (a audit) lists(t *testing.T) (lists map[string]int, watches int) {
	t.Helper()
	lists = map[string]int{}
	a.requests(t, func(e *auditv1.Event) {
		switch state := strings.Contains(e.RequestURI, "sendInitialEvents=true"); {
		case e.User.Username == "system:apiserver":
		// selects nothing: it asks for the version
		case state && strings.Contains(e.RequestURI, "fieldSelector=metadata.name%3D-&"):
		case state || e.Verb == "list":
			lists[e.ObjectRef.Resource]++
		default:
			watches++
		}
	})
	return lists, watches
}
