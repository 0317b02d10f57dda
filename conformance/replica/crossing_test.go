// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCrossing continues lists at another server than the one that has begun them: with
// --pass-through the pages of a list can come from the copy and from the cluster, if the
// resource becomes mirrored in between or is not mirrored any more. The pages must be those
// of one list.
func TestCrossing(t *testing.T) {
	w := theComparedCluster(t)
	if w.process == nil {
		t.Skip("there is no replica")
	}
	for _, path := range []string{
		"/api/v1/namespaces/bulk/configmaps", "/api/v1/configmaps", "/apis/example.com/v1/widgets",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles",
	} {
		whole := w.server.send(t.Context(), request{Method: http.MethodGet, URI: path, Accept: metadataAccept})
		want := itemNames(t, whole)
		// Each list alternates between two servers, and begins with the first.
		for _, pair := range [][2]*subject{{w.server, w.passing}, {w.passing, w.server}} {
			var got []string
			token, pages := "", 0
			for ; pages == 0 || token != ""; pages++ {
				s := pair[pages%2]
				a := s.send(t.Context(), request{
					Method: http.MethodGet,
					URI:    path + "?limit=2&continue=" + url.QueryEscape(token),
					Accept: metadataAccept,
				})
				if a.err != nil || a.code != http.StatusOK || pages > 1000 {
					t.Fatalf("page %d of %s at the %s: %d %v %.300s", pages, path, s.name, a.code, a.err, a.body)
				}
				got = append(got, itemNames(t, a)...)
				var err error
				if token, err = continueToken(a); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, begun at the %s, has in %d pages\n\t%v\nwant\n\t%v", path, pair[0].name, pages, got, want)
			}
			if pages < 2 {
				t.Errorf("%s has one page", path)
			}
		}
	}
}

// itemNames returns the namespaces and names of the items of a list.
func itemNames(t *testing.T, a *answer) []string {
	t.Helper()
	v, err := value(a)
	if a.err != nil || err != nil {
		t.Fatal(a.err, err)
	}
	var out []string
	items, _ := at(v, "items").([]any)
	for _, item := range items {
		out = append(out, text(item, "metadata", "namespace")+"/"+text(item, "metadata", "name"))
	}
	return out
}

var (
	fidelityRandom = flag.Int("fidelity.random", 400, "how many random requests TestFidelity_random sends")
	fidelitySeed   = flag.Uint64("fidelity.seed", 0, "seed of TestFidelity_random; 0 takes the time")
)

// TestFidelity_random sends random requests to kube-apiserver and to a replica with
// --pass-through. No object changes meanwhile, so a request that the copy answers differently
// is one that it must not answer.
func TestFidelity_random(t *testing.T) {
	w := theComparedCluster(t)
	if w.process == nil {
		t.Skip("there is no replica")
	}
	seed := *fidelitySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	requests := []request{
		// It was found by this test.
		{Category: "random", URI: w.uids["one:/api/v1/events"] + "?resourceVersion=x", Accept: jsonAccept},
	}
	for range *fidelityRandom {
		requests = append(requests, w.randomRequest(random))
	}
	requests = distinct(requests)
	columns := w.columns()[1:]
	start := time.Now()
	byCopy, equal := 0, 0
	for _, r := range w.compareAll(t, requests, columns)[0] {
		if r.copy.header.Get("Watershed-Source") == "" {
			byCopy++
		}
		switch {
		case len(r.found) == 0:
			equal++
		case r.only("/rows") && r.found[0].server == "null" && r.found[0].copy == "[]":
			// kube-apiserver writes an empty table in two ways, depending on the resource.
		case r.only("/metadata/continue") && r.request.query("labelSelector")+r.request.query("fieldSelector") != "":
			// With a selector, kube-apiserver may send a token although nothing follows.
		case intended(w, &r, columns[0].differences) == nil:
			t.Errorf("%s\n\t%s", r.request, findings(r.found))
		}
	}
	t.Logf("%d of %d requests equal, %d answered by the copy, in %.1fs", equal, len(requests), byCopy,
		time.Since(start).Seconds())
	if byCopy < len(requests)/8 || byCopy > len(requests)*9/10 {
		t.Errorf("%d of %d requests are answered by the copy: the test compares one side only", byCopy, len(requests))
	}
}

// randomRequest returns a request that changes nothing: a read, or a write with dryRun and
// without a body.
func (w *comparedCluster) randomRequest(r *rand.Rand) request {
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	all := w.catalogue.all
	of := all[r.IntN(len(all))]
	uri := pick(of.path(), of.path(), of.in("shop"), of.in("shop"), of.in("absent"), of.root(), of.path()+"s")
	list := uri != of.root()
	one := w.uids["one:"+of.path()]
	if one != "" && r.IntN(2) == 0 {
		below := append([]string{"", "", "status", "scale", "nothing"}, of.below...)
		uri, list = strings.TrimSuffix(one+"/"+below[r.IntN(len(below))], "/"), false
	}
	method := pick("GET", "GET", "GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH")
	query := []string{"timeoutSeconds=1"} // ends watches
	if method != http.MethodGet {
		query = append(query, "dryRun=All")
	}
	options := []string{
		"limit=1", "limit=2", "limit=0", "limit=-1", "limit=x", "continue=x", "resourceVersion=0", "resourceVersion=x",
		"resourceVersion=-1", "resourceVersion=",
		"resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact", "resourceVersionMatch=x",
		"labelSelector=app%3Dweb", "labelSelector=!app", "labelSelector=%3D%3D%3D",
		"fieldSelector=metadata.name%3Dweb", "fieldSelector=metadata.namespace%3Dshop", "fieldSelector=spec.x%3Dy",
		"fieldSelector=%3D", "pretty=true", "timeout=1s", "timeout=x",
		"includeObject=Object", "includeObject=x", "watch=false", "allowWatchBookmarks=true", "sendInitialEvents=true",
		"shardSelector=x", "unknown=x",
	}
	if list {
		options = append(options, "watch=true", "watch=true")
	}
	for range r.IntN(4) {
		query = append(query, options[r.IntN(len(options))])
	}
	accept := pick("", jsonAccept, jsonAccept, protobufAccept, protobufAccept+","+jsonAccept, tableAccept, tablesAccept,
		metadataAccept, objectAccept, aggregatedAccept, accepts[r.IntN(len(accepts))])
	return request{
		Category: "random",
		Method:   method,
		URI:      fmt.Sprintf("%s?%s", uri, strings.Join(query, "&")),
		Accept:   accept,
		Encoding: pick("", "", "gzip", "identity"),
	}
}
