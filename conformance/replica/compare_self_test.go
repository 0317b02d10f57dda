// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// replied returns a response for tests of the comparison.
func replied(code int, media, body string, header ...string) *answer {
	h := http.Header{"Content-Type": {media}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &answer{code: code, header: h, body: []byte(body)}
}

// versionsAt is replied at an address, with a list of versions that contains an address.
func versionsAt(asked, named string) *answer {
	a := replied(200, jsonAccept,
		fmt.Sprintf(
			`{"kind":"APIVersions","serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":%q}]}`,
			named,
		))
	a.host = asked
	return a
}

func list(version, token string, items ...string) string {
	return fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`,
		version, token, strings.Join(items, ","))
}

func item(name, version string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q}}`, name, version)
}

func row(cells, name string) string {
	return fmt.Sprintf(
		`{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[{"cells":[%s],"object":{"metadata":{"name":%q,"resourceVersion":"5"}}}]}`, cells, name,
	)
}

func inProtobuf(t *testing.T, value string) string {
	t.Helper()
	var b bytes.Buffer
	m := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Data:     map[string]string{"k": value},
	}
	if err := protobuf.NewSerializer(known, known).Encode(m, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestComparison_notices compares responses that differ, and some that count as equal
// although they are not identical.
func TestComparison_notices(t *testing.T) {
	const uri = "/api/v1/configmaps"
	for _, c := range []struct {
		what         string
		server, copy *answer
		uri, where   string // "" is equal
	}{
		{"nothing", replied(200, jsonAccept, `{"a":1}`), replied(200, jsonAccept, `{ "a": 1 }`), uri, ""},
		{"status", replied(200, jsonAccept, `{}`), replied(404, jsonAccept, `{}`), uri, "status"},
		{
			"media type", replied(200, jsonAccept, `{}`), replied(200, "application/yaml", `{}`), uri,
			"header Content-Type",
		},
		{
			"a header", replied(200, jsonAccept, `{}`, "Warning", "299 - x"), replied(200, jsonAccept, `{}`), uri,
			"header Warning",
		},
		{"tags", replied(200, jsonAccept, `{}`, "ETag", "a"), replied(200, jsonAccept, `{}`, "ETag", "b"), uri, ""},
		{"no tag", replied(200, jsonAccept, `{}`, "ETag", "a"), replied(200, jsonAccept, `{}`), uri, "has an ETag"},
		{"a value", replied(200, jsonAccept, `{"a":{"b":1}}`), replied(200, jsonAccept, `{"a":{"b":2}}`), uri, "/a/b"},
		{
			"a large number", replied(200, jsonAccept, `{"a":9007199254740993}`),
			replied(200, jsonAccept, `{"a":9007199254740992}`), uri, "/a",
		},
		{"a number's type", replied(200, jsonAccept, `{"a":"1"}`), replied(200, jsonAccept, `{"a":1}`), uri, "/a"},
		{"null", replied(200, jsonAccept, `{"a":null}`), replied(200, jsonAccept, `{}`), uri, "/a"},
		{"more", replied(200, jsonAccept, `{}`), replied(200, jsonAccept, `{"a":1}`), uri, "/a"},
		{"rest", replied(200, jsonAccept, `{}`), replied(200, jsonAccept, `{}{}`), uri, "body cannot be read"},
		{
			"indentation", replied(200, jsonAccept, "{\n  \"a\": 1\n}"), replied(200, jsonAccept, `{"a":1}`),
			uri + "?pretty=true", "indented",
		},
		{
			"indentation that nobody asked for", replied(200, jsonAccept, "{\n  \"a\": 1\n}"),
			replied(200, jsonAccept, `{"a":1}`), uri, "",
		},
		{"yaml", replied(200, "application/yaml", "a: 1"), replied(200, "application/yaml", "a: 2"), uri, "/a"},
		{
			"protobuf", replied(200, protobufAccept, inProtobuf(t, "1")),
			replied(200, protobufAccept, inProtobuf(t, "2")), uri, "/data/k",
		},
		{
			"an item", replied(200, jsonAccept, list("9", "", item("a", "5"))), replied(200, jsonAccept, list("9", "")),
			uri, "/items",
		},
		{
			"order", replied(200, jsonAccept, list("9", "", item("a", "5"), item("b", "5"))),
			replied(200, jsonAccept, list("9", "", item("b", "5"), item("a", "5"))), uri, "/items/0/metadata/name",
		},
		{
			"an older list", replied(200, jsonAccept, list("9", "", item("a", "5"))),
			replied(200, jsonAccept, list("6", "", item("a", "5"))), uri, "",
		},
		{
			"a newer list", replied(200, jsonAccept, list("9", "")), replied(200, jsonAccept, list("10", "")), uri,
			"/metadata/resourceVersion",
		},
		{
			"older than its item", replied(200, jsonAccept, list("9", "", item("a", "5"))),
			replied(200, jsonAccept, list("4", "", item("a", "5"))), uri, "/metadata/resourceVersion",
		},
		{
			"no version", replied(200, jsonAccept, list("9", "")), replied(200, jsonAccept, list("", "")), uri,
			"/metadata/resourceVersion",
		},
		{
			"an exact version", replied(200, jsonAccept, list("9", "")), replied(200, jsonAccept, list("8", "")),
			uri + "?resourceVersionMatch=Exact", "/metadata/resourceVersion",
		},
		{"tokens", replied(200, jsonAccept, list("9", "x")), replied(200, jsonAccept, list("9", "y")), uri, ""},
		{
			"no token", replied(200, jsonAccept, list("9", "x")), replied(200, jsonAccept, list("9", "")), uri,
			"/metadata/continue",
		},
		{
			"ages", replied(200, jsonAccept, row(`"a","59s"`, "a")), replied(200, jsonAccept, row(`"a","60s"`, "a")),
			uri, "",
		},
		{
			"other ages", replied(200, jsonAccept, row(`"a","59s"`, "a")),
			replied(200, jsonAccept, row(`"a","80s"`, "a")), uri, "/rows/0/cells/1",
		},
		{
			"a cell", replied(200, jsonAccept, row(`"a",1`, "a")), replied(200, jsonAccept, row(`"a","1"`, "a")), uri,
			"/rows/0/cells/1",
		},
		{
			"own addresses", versionsAt("127.0.0.1:1", "192.0.2.1:1"), versionsAt("127.0.0.1:2", "127.0.0.1:2"), "/api",
			"",
		},
		{
			"an address that was not asked", versionsAt("127.0.0.1:1", "192.0.2.1:1"),
			versionsAt("127.0.0.1:2", "192.0.2.1:2"), "/api", "/serverAddressByClientCIDRs/0/serverAddress",
		},
		{
			"no address", versionsAt("127.0.0.1:1", "192.0.2.1:1"),
			replied(200, jsonAccept, `{"kind":"APIVersions","serverAddressByClientCIDRs":[]}`), "/api",
			"/serverAddressByClientCIDRs",
		},
		{"text", replied(200, "text/plain", "ok"), replied(200, "text/plain", "not ok"), uri, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			cmp := comparison{request: request{Method: http.MethodGet, URI: c.uri}}
			found := cmp.run(c.server, c.copy)
			if c.what == "text" {
				if len(found) != 1 {
					t.Errorf("found %v", found)
				}
				return
			}
			if c.where == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			for _, f := range found {
				if f.where == c.where {
					return
				}
			}
			t.Errorf("found %v, not %s", found, c.where)
		})
	}
}

// TestComparison_noticesEvents does the same for watches.
func TestComparison_noticesEvents(t *testing.T) {
	told := func(kind, name, version string, annotations ...string) event {
		m := map[string]any{"name": name, "resourceVersion": version}
		if len(annotations) > 0 {
			m["annotations"] = map[string]any{annotations[0]: "true"}
		}
		return event{kind: kind, object: map[string]any{"kind": "ConfigMap", "metadata": m}}
	}
	end := told("BOOKMARK", "", "9", metav1.InitialEventsAnnotationKey)
	a, b := told("ADDED", "a", "5"), told("ADDED", "b", "6")
	for _, c := range []struct {
		what         string
		server, copy []event
		equal        bool
	}{
		{"the same", []event{a, b}, []event{a, b}, true},
		{"order", []event{a, b}, []event{b, a}, false},
		{"one less", []event{a, b}, []event{a}, false},
		{"one more", []event{a}, []event{a, a}, false},
		{"type", []event{a}, []event{told("MODIFIED", "a", "5")}, false},
		{"version", []event{a}, []event{told("ADDED", "a", "6")}, false},
		{"bookmarks in between", []event{a, b}, []event{a, told("BOOKMARK", "", "5"), b}, true},
		{"the end of the initial events", []event{a, end, b}, []event{a, b, end}, false},
		{"no end", []event{a, end}, []event{a}, false},
		{
			"how far it has come",
			[]event{a, end},
			[]event{a, told("BOOKMARK", "", "7", metav1.InitialEventsAnnotationKey)},
			true,
		},
		{"a bookmark's shape", []event{a, told("BOOKMARK", "", "5")}, []event{a, told("BOOKMARK", "x", "5")}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			cmp := comparison{request: request{Method: http.MethodGet, URI: "/api/v1/configmaps?watch=true"}}
			server, copy := replied(200, jsonAccept, ""), replied(200, jsonAccept, "")
			server.events, copy.events = c.server, c.copy
			if found := cmp.run(server, copy); (len(found) == 0) != c.equal {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestCatalogue_restrict checks how a document is restricted.
func TestCatalogue_restrict(t *testing.T) {
	c := &catalogue{all: []served{
		{group: "apps", version: "v2", resource: "things", mirrored: true},
		{group: "apps", version: "v1", resource: "things"},
	}}
	in, err := fromJSON([]byte(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"},"versions":[
		{"version":"v2","resources":[{"resource":"things","verbs":["create","get","list"],"subresources":[{"subresource":"bind","verbs":["create"]},{"subresource":"status","verbs":["get","update"]},{"subresource":"log","verbs":["get"]}]},{"resource":"reviews","verbs":["create"]}]},
		{"version":"v1","resources":[{"resource":"things","verbs":["get"]}]}]},{"metadata":{"name":"other"},"versions":[{"version":"v1"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"items":[{"metadata":{"name":"apps"},"versions":[{"resources":[{"resource":"things","subresources":[{"subresource":"status","verbs":["get"]}],"verbs":["get","list"]}],"version":"v2"}]}],"kind":"APIGroupDiscoveryList"}`
	if got := short(c.restrict(in)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestCollection checks the paths of lists.
func TestCollection(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                       "/api/v1/pods",
		"/api/v1/namespaces":                                 "/api/v1/namespaces",
		"/api/v1/namespaces/shop":                            "/api/v1/namespaces",
		"/api/v1/namespaces/shop/pods/a":                     "/api/v1/namespaces/shop/pods",
		"/api/v1/watch/namespaces/shop/pods/a":               "/api/v1/namespaces/shop/pods",
		"/apis/apps/v1/watch/deployments":                    "/apis/apps/v1/deployments",
		"/apis/example.com/v1/planets/earth":                 "/apis/example.com/v1/planets",
		"/apis/example.com/v1/namespaces/shop/widgets/one/x": "/apis/example.com/v1/namespaces/shop/widgets",
	} {
		if got := collection(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestReport checks the counts on the page.
func TestReport(t *testing.T) {
	d := &differences[0]
	equal := result{request: request{Category: "a", Method: "GET", URI: "/equal"}}
	meant := result{
		request:  request{Category: "a", Method: "POST", URI: "/meant"},
		found:    []finding{{"status", "200", "405"}},
		intended: d,
	}
	wrong := result{
		request: request{Category: "b", Method: "GET", URI: "/wrong"},
		found:   []finding{{"status", "200", "500"}},
	}
	passed := result{request: meant.request}
	page := report([]column{{differences: differences}, {name: "other", differences: passingDifferences}},
		[][]result{{equal, meant, wrong}, {equal, passed, wrong}}, "v1", time.Unix(0, 0))
	lines := strings.Split(page, "\n")
	if !strings.HasPrefix(lines[0], "# ") || lines[2] != "1 of 3 requests equal" ||
		lines[4] != "2 of 3 requests equal other" {
		t.Errorf("the page begins with %q", lines[:5])
	}
	for _, want := range []string{
		"| requests | equal | equal other | sent |", "| a | 1 | 2 | 2 |", "| b | 0 | 0 | 1 |", "### " + d.name,
		"`POST /meant`: status: `200`, replica `405`", "### Not intended", "`GET /wrong`",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if _, other, _ := strings.Cut(page, "## Differences other"); strings.Contains(other, "/meant") ||
		!strings.Contains(other, "/wrong") {
		t.Errorf("the second list is %s", other)
	}
}
