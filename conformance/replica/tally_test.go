// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
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

// verbs are the verbs of requests in the order in which they are printed. The last one stands
// for all requests that do not address a resource.
var verbs = []string{"watch", "list", "get", "create", "update", "patch", "delete", "deletecollection", discoveryVerb}

const discoveryVerb = "discovery"

// verbOf returns the verb under which requests are printed.
func verbOf(k requestKind) string {
	if strings.HasPrefix(k.what, "/") {
		return discoveryVerb
	}
	return k.verb
}

// logShares writes the requests of each controller by verb: those to the replica, those of
// them that reached the API server, and those to an API server without a replica.
func logShares(t *testing.T, direct, sent, reached tally) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %-17s %9s %9s %7s %9s\n", "program", "verb", "sent", "reached", "share", "direct")
	for _, program := range controllers {
		line := func(title string, match func(requestKind) bool) {
			n, passed := sent.of(program, match), reached.of(program, match)
			fmt.Fprintf(&b, "%-24s %-17s %9d %9d %6.1f%% %9d\n", program, title, n, passed,
				100*float64(passed)/float64(max(1, n)), direct.of(program, match))
		}
		for _, verb := range verbs {
			line(verb, func(k requestKind) bool { return verbOf(k) == verb })
		}
		line("all reads", isReadVerb)
		line("all writes", isWriteVerb)
		line("all", isAnyVerb)
	}
	own := func(reviews bool) (n int) {
		for k, count := range reached {
			review := strings.HasPrefix(k.what, "tokenreviews.") || strings.HasPrefix(k.what, "subjectaccessreviews.")
			if review == reviews && (review || k.client == "watershed") {
				n += count
			}
		}
		return n
	}
	fmt.Fprintf(&b, "the replica itself: %d reviews of tokens and rights, %d reads\n", own(true), own(false))
	t.Logf("requests to the replica, of which reached the API server; and without a replica:\n%s", &b)
}

var (
	// errorLine matches the header of an error in the log of a program of Kubernetes.
	errorLine = regexp.MustCompile(`^E\d{4} [\d:.]+ +\d+ ([^\]]*)\] (.*)`)
	// specifics are the parts of an error that differ between errors of one kind.
	specifics = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|-[0-9a-z]{5,10}(-[0-9a-z]{5})?\b|\d[\d.:]*`)
)

// loggedErrors returns the errors in a log, counted by kind.
func loggedErrors(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if found := errorLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			kind := specifics.ReplaceAllString(found[2], "*")
			counts[kind[:min(300, len(kind))]]++
		}
	}
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "\n  %4d %s", counts[kind], kind)
	}
	return b.String()
}

// log writes the counts of each client by verb, with the most frequent resources.
func (c tally) log(t *testing.T, title string) {
	t.Helper()
	type group struct{ client, verb string }
	groups := map[group][]requestKind{}
	for k := range c {
		g := group{k.client, verbOf(k)}
		groups[g] = append(groups[g], k)
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
