// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/watch"
)

// finding is one difference between two responses.
type finding struct {
	where        string
	server, copy string
}

func (f finding) String() string {
	return fmt.Sprintf("%s: server %s, replica %s", f.where, brief(f.server), brief(f.copy))
}

func brief(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

// comparison compares two responses to one request.
type comparison struct {
	request  request
	restrict func(v any) any // applied to the server's response
	both     bool            // and to the copy's
	prefix   string          // of the copy's paths
	// passed means that the copy's response comes from the server.
	passed bool
	// asked and askedCopy are the URIs that were requested.
	asked, askedCopy string
	found            []finding
}

// comparedHeaders are the headers that a client of the API uses.
var comparedHeaders = []string{
	"Content-Type", "Cache-Control", "Vary", "Retry-After", "Warning", "Content-Encoding", "Allow", "Location",
}

func (c *comparison) note(where string, server, copy any) {
	c.found = append(c.found, finding{where, fmt.Sprint(server), fmt.Sprint(copy)})
}

// run compares two responses. That of the copy was requested first.
func (c *comparison) run(server, copy *answer) []finding {
	if server.err != nil || copy.err != nil {
		c.note("error", server.err, copy.err)
		return c.found
	}
	if server.code != copy.code {
		c.note("status", server.code, copy.code)
	}
	c.asked, c.askedCopy = server.uri, copy.uri
	c.headers(server.header, copy.header)
	if server.code == http.StatusOK && copy.code == http.StatusOK && c.request.watches() {
		c.events(server.events, copy.events)
		if server.open != copy.open {
			c.note("watch still open", server.open, copy.open)
		}
		return c.found
	}
	if c.request.Fleeting && server.code == copy.code {
		return c.found
	}
	c.bodies(server, copy)
	if len(server.next) != len(copy.next) {
		c.note("pages after the first", len(server.next), len(copy.next))
		return c.found
	}
	for i := range server.next {
		page := comparison{request: c.request, restrict: c.restrict, both: c.both, prefix: c.prefix, passed: c.passed}
		for _, f := range page.run(server.next[i], copy.next[i]) {
			f.where = fmt.Sprintf("page %d: %s", i+2, f.where)
			c.found = append(c.found, f)
		}
	}
	return c.found
}

func (c *comparison) headers(server, copy http.Header) {
	for _, name := range comparedHeaders {
		a, b := headerList(server, name), headerList(copy, name)
		if name == "Location" {
			a, b = resolved(a, c.asked), strings.TrimPrefix(resolved(b, c.prefix+c.askedCopy), c.prefix)
		}
		if a != b {
			c.note("header "+name, quoted(a), quoted(b))
		}
	}
	// The content of an ETag is up to the server.
	if a, b := server.Get("ETag") != "", copy.Get("ETag") != ""; a != b {
		c.note("has an ETag", a, b)
	}
	if !c.passed {
		return
	}
	// A response that is passed back has all headers, also those that identify the request.
	// Content-Length depends on the protocol. The headers of programs in the cluster, below
	// proxy, are not passed back.
	for _, name := range slices.Sorted(maps.Keys(server)) {
		if name != "Content-Length" && !strings.Contains(c.request.path(), "/proxy/") && copy.Get(name) == "" &&
			server.Get(name) != "" {
			c.note("header "+name, quoted(server.Get(name)), "none")
		}
	}
}

// resolved returns the target of a Location relative to a URI.
func resolved(location, from string) string {
	base, err := url.Parse(from)
	if err != nil || location == "" {
		return location
	}
	to, err := base.Parse(location)
	if err != nil {
		return location
	}
	return to.RequestURI()
}

func quoted(s string) string {
	if s == "" {
		return "none"
	}
	return strconv.Quote(s)
}

func (c *comparison) bodies(server, copy *answer) {
	a, errA := value(server)
	b, errB := value(copy)
	if errA != nil || errB != nil {
		c.note("body cannot be read", errA, errB)
		return
	}
	if c.restrict != nil {
		if a = c.restrict(a); c.both {
			b = c.restrict(b)
		} else {
			b = sorted(b)
		}
	}
	if !c.passed {
		a, b = withoutAddress(a, server.host, false), withoutAddress(b, copy.host, !c.both)
	}
	asked := strings.Contains(c.request.URI+c.request.Accept, "pretty")
	if x, y := indented(server.body),
		indented(copy.body); asked && x != y && mediaType(server.header) == mediaType(copy.header) {
		c.note("indented", x, y)
	}
	c.values(a, b)
}

// indented reports whether a body is indented JSON.
func indented(body []byte) bool {
	return bytes.HasPrefix(body, []byte("{\n")) || bytes.HasPrefix(body, []byte("[\n"))
}

// withoutAddress returns a list of versions with "here" in place of the server's own
// address. A replica returns the address of the request, and kube-apiserver one at which
// others may reach it: only its port is known.
func withoutAddress(v any, asked string, exact bool) any {
	if text(v, "kind") != "APIVersions" {
		return v
	}
	m := maps.Clone(v.(map[string]any))
	m["serverAddressByClientCIDRs"] = each(m["serverAddressByClientCIDRs"], func(by map[string]any) map[string]any {
		address := text(by, "serverAddress")
		_, port, err := net.SplitHostPort(address)
		if address == asked || !exact && err == nil && strings.HasSuffix(asked, ":"+port) {
			by["serverAddress"] = "here"
		}
		return by
	})
	return m
}

// values compares two values as whole responses.
func (c *comparison) values(a, b any) {
	if isList(a) && isList(b) {
		c.lists(a, b)
		return
	}
	if text(a, "kind") == "Status" && text(b, "kind") == "Status" {
		a, b = normalStatus(a), normalStatus(b)
	}
	c.diff("", a, b)
}

// lists compares lists. The version of the server's list is that of the store, and the
// version of the replica's is the last one of its watch of the resource: not newer, and
// not older than any item. Tokens are compared by following them.
func (c *comparison) lists(a, b any) {
	x, y := text(a, "metadata", "resourceVersion"), text(b, "metadata", "resourceVersion")
	at1, err1 := strconv.ParseUint(x, 10, 64)
	at2, err2 := strconv.ParseUint(y, 10, 64)
	// A token contains its version.
	exact := c.request.query("resourceVersionMatch") == "Exact" && (request{URI: c.askedCopy}).query("continue") == ""
	switch {
	case x == y:
	case exact && x == (request{URI: c.asked}).query("resourceVersion") &&
		y == (request{URI: c.askedCopy}).query("resourceVersion"):
		// Each request had the version of the subject's own list.
	case err1 != nil || err2 != nil || exact || at2 > at1 || at2 < newest(b):
		c.note("/metadata/resourceVersion", x, fmt.Sprintf("%s, its newest item %d", y, newest(b)))
	}
	if (text(a, "metadata", "continue") != "") != (text(b, "metadata", "continue") != "") {
		c.note("/metadata/continue", text(a, "metadata", "continue"), text(b, "metadata", "continue"))
	}
	c.diff("", without(a, "metadata", "resourceVersion", "continue"),
		without(b, "metadata", "resourceVersion", "continue"))
}

// newest returns the highest version of a list's items.
func newest(list any) uint64 {
	items, _ := at(list, "items").([]any)
	rows, _ := at(list, "rows").([]any)
	for _, r := range rows {
		items = append(items, at(r, "object"))
	}
	var top uint64
	for _, item := range items {
		if v, err := strconv.ParseUint(text(item, "metadata", "resourceVersion"), 10, 64); err == nil {
			top = max(top, v)
		}
	}
	return top
}

// without returns a copy of a value without some members of one of its maps, or without
// that map if no members are given.
func without(v any, field string, names ...string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if len(names) == 0 {
		m = maps.Clone(m)
		delete(m, field)
		return m
	}
	inner, ok := m[field].(map[string]any)
	if !ok {
		return v
	}
	m, inner = maps.Clone(m), maps.Clone(inner)
	for _, name := range names {
		delete(inner, name)
	}
	m[field] = inner
	return m
}

// versionsInText matches versions in messages, which change all the time.
var versionsInText = regexp.MustCompile(`(current: |too old resource version: \d+ \()\d+`)

func normalStatus(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	out, err := fromJSON(versionsInText.ReplaceAll(b, []byte("${1}N")))
	if err != nil {
		return v
	}
	return out
}

// maxFindings limits the findings of one body: more add no information.
const maxFindings = 12

// diff compares any two values and records their differences.
func (c *comparison) diff(path string, a, b any) {
	if len(c.found) >= maxFindings {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			c.note(path, short(a), short(b))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(merged(x, y))) {
			p := path + "/" + name
			if _, ok := x[name]; !ok {
				c.note(p, "nothing", short(y[name]))
			} else if _, ok := y[name]; !ok {
				c.note(p, short(x[name]), "nothing")
			} else {
				c.diff(p, x[name], y[name])
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok {
			c.note(path, short(a), short(b))
			return
		}
		if len(x) != len(y) {
			c.note(path, fmt.Sprintf("%d: %s", len(x), short(names(x))), fmt.Sprintf("%d: %s", len(y), short(names(y))))
			return
		}
		for i := range x {
			c.diff(path+"/"+strconv.Itoa(i), x[i], y[i])
		}
	default:
		if reflect.DeepEqual(a, b) {
			return
		}
		s, ok1 := a.(string)
		t, ok2 := b.(string)
		if ok1 && ok2 && strings.Contains(path, "/cells/") && sameWords(s, t, agesWithin) {
			return
		}
		c.note(path, short(a), short(b))
	}
}

func merged(a, b map[string]any) map[string]any {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// names returns the names of a list's objects, or the list itself.
func names(list []any) any {
	var out []any
	for _, item := range list {
		meta := at(item, "metadata")
		if meta == nil {
			meta = at(item, "object", "metadata")
		}
		if meta == nil {
			return list
		}
		out = append(out, text(meta, "namespace")+"/"+text(meta, "name"))
	}
	return out
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return brief(string(b))
}

// events compares two watches: the same events in the same order. Bookmarks may come at
// any time, except for the one that ends the initial events.
func (c *comparison) events(server, copy []event) {
	a, b := significant(server), significant(copy)
	if len(a) != len(b) {
		c.note("events", fmt.Sprintf("%d: %s", len(a), briefNames(a)), fmt.Sprintf("%d: %s", len(b), briefNames(b)))
		return
	}
	for i := range a {
		if len(c.found) >= maxFindings {
			return
		}
		where := fmt.Sprintf("event %d", i)
		if a[i].kind != b[i].kind {
			c.note(where, a[i].name(), b[i].name())
			continue
		}
		x, y := a[i].object, b[i].object
		if a[i].initialEnd() {
			// Its version is how far the server has come.
			x, y = withoutVersion(x), withoutVersion(y)
		}
		if i > 0 && (at(x, "columnDefinitions") == nil || at(y, "columnDefinitions") == nil) {
			// The server shares rows between watches, with the columns if the watch for
			// which a row was made had sent none yet. Only the first event must have them.
			x, y = without(x, "columnDefinitions"), without(y, "columnDefinitions")
		}
		if text(x, "kind") == "Status" && text(y, "kind") == "Status" {
			x, y = normalStatus(x), normalStatus(y)
		}
		c.diff(where, x, y)
	}
	for _, e := range copy {
		if e.kind == string(watch.Bookmark) {
			c.bookmark(server, e)
		}
	}
}

func briefNames(events []event) string {
	var out []string
	for _, e := range events {
		out = append(out, e.name())
	}
	return strings.Join(out, ", ")
}

// significant returns the events without those that a server may send at any time.
func significant(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool {
		return e.kind == string(watch.Bookmark) && !e.initialEnd()
	})
}

// bookmark compares the form of a bookmark with the server's, if it has sent one.
func (c *comparison) bookmark(server []event, e event) {
	for _, s := range server {
		if s.kind == e.kind && s.initialEnd() == e.initialEnd() {
			// See events for the columns.
			c.diff("bookmark", without(withoutVersion(s.object), "columnDefinitions"),
				without(withoutVersion(e.object), "columnDefinitions"))
			return
		}
	}
}

func withoutVersion(v any) any {
	v = without(v, "metadata", "resourceVersion")
	rows, ok := at(v, "rows").([]any)
	if !ok {
		return v
	}
	m := maps.Clone(v.(map[string]any))
	out := make([]any, len(rows))
	for i, r := range rows {
		row := maps.Clone(r.(map[string]any))
		row["object"] = without(row["object"], "metadata", "resourceVersion")
		// The cells of a bookmark are those of an object without a name.
		out[i] = row
	}
	m["rows"] = out
	return m
}
