// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// tally counts requests.
type tally map[requestKind]int

// requestKind is what the requests have in common that are counted together.
type requestKind struct {
	client string // the name in its user agent
	verb   string
	what   string // the resource, or the first parts of another path
}

// readAudit counts the requests in an audit log.
func readAudit(t *testing.T, path string) tally {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts, seen := tally{}, map[types.UID]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if seen[e.AuditID] {
			continue // a watch has an event at its begin, and one at its end
		}
		seen[e.AuditID] = true
		counts[kindOfRequest(&e)]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

func kindOfRequest(e *auditv1.Event) requestKind {
	client, _, _ := strings.Cut(e.UserAgent, "/")
	k := requestKind{client: client, verb: e.Verb}
	if o := e.ObjectRef; o != nil {
		k.what = strings.TrimSuffix(o.Resource+"."+o.APIGroup, ".")
		if o.Subresource != "" {
			k.what += "/" + o.Subresource
		}
		return k
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(e.RequestURI, "/clusters/one"), "?")
	parts := strings.Split(path, "/")
	k.what = strings.Join(parts[:min(2, len(parts))], "/")
	return k
}

func isAnyVerb(requestKind) bool { return true }

// isReadVerb reports whether requests are reads of a resource.
func isReadVerb(k requestKind) bool {
	return !strings.HasPrefix(k.what, "/") && (k.verb == "get" || k.verb == "list" || k.verb == "watch")
}

func isWriteVerb(k requestKind) bool { return !strings.HasPrefix(k.what, "/") && !isReadVerb(k) }

// of returns how many requests of a client match.
func (c tally) of(client string, match func(requestKind) bool) int {
	n := 0
	for k, count := range c {
		if k.client == client && match(k) {
			n += count
		}
	}
	return n
}

// log writes the counts of each client by verb, with the most frequent resources.
func (c tally) log(t *testing.T, title string) {
	t.Helper()
	type group struct{ client, verb string }
	groups := map[group][]requestKind{}
	for k := range c {
		verb := k.verb
		if strings.HasPrefix(k.what, "/") {
			verb = "discovery"
		}
		groups[group{k.client, verb}] = append(groups[group{k.client, verb}], k)
	}
	var lines []string
	for g, kinds := range groups {
		slices.SortFunc(kinds, func(a, b requestKind) int { return cmp.Or(c[b]-c[a], cmp.Compare(a.what, b.what)) })
		total, parts := 0, []string(nil)
		for i, k := range kinds {
			total += c[k]
			if i < 12 {
				parts = append(parts, fmt.Sprintf("%s %d", k.what, c[k]))
			}
		}
		lines = append(lines, fmt.Sprintf("%-24s %-17s %6d  %s", g.client, g.verb, total, strings.Join(parts, ", ")))
	}
	slices.Sort(lines)
	t.Logf("%s:\n%s", title, strings.Join(lines, "\n"))
}
