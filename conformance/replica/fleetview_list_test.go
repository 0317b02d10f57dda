// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// revision returns the fleet's version of a list.
func revision(t *testing.T, l *page) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// testFleetList: a list has the objects of both clusters in order, contains the cluster
// of each object in every form, and has its own version that grows with every change.
func testFleetList(t *testing.T, p *pair) {
	p.fill(t, "listed", 6)
	last := revision(t, p.settled(t, "listed"))
	for i := range 6 {
		if err := p.put(t.Context(), i%2, "listed", "both-00", nil, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		now := revision(t, p.settled(t, "listed"))
		if now <= last {
			t.Errorf("the version is %d after a change, and was %d", now, last)
		}
		last = now
	}
	want, err := p.truth(t.Context(), "listed", "color=blue")
	if err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/namespaces/listed/configmaps?labelSelector=color%3Dblue"
	for _, accept := range []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	} {
		v, err := value(p.fleet.send(t.Context(), request{Method: http.MethodGet, URI: path, Accept: accept}))
		if err != nil {
			t.Fatal(err)
		}
		items, _ := at(v, "items").([]any)
		var got []string
		for _, item := range items {
			got = append(got, located(at(item, "metadata")))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", accept, got, want)
		}
	}
	testFleetTable(t, p, path, want)
}

// located returns the identity of an object from its metadata.
func located(meta any) string {
	return fmt.Sprintf("%s/%s/%s@%s", text(meta, "annotations", clusterAnnotation), text(meta, "namespace"),
		text(meta, "name"), text(meta, "resourceVersion"))
}

func testFleetTable(t *testing.T, p *pair, path string, want []string) {
	t.Helper()
	v, err := value(p.fleet.send(t.Context(), request{
		Method: http.MethodGet, URI: path, Accept: "application/json;as=Table;g=meta.k8s.io;v=v1",
	}))
	if err != nil {
		t.Fatal(err)
	}
	columns, _ := at(v, "columnDefinitions").([]any)
	if len(columns) == 0 || text(columns[len(columns)-1], "name") != "Cluster" {
		t.Errorf("the columns of a table are %v", columns)
	}
	rows, _ := at(v, "rows").([]any)
	var got []string
	for _, row := range rows {
		got = append(got, located(at(row, "object", "metadata")))
		if cells, _ := at(row, "cells").([]any); len(cells) != len(columns) ||
			cells[len(cells)-1] != text(row, "object", "metadata", "annotations", clusterAnnotation) {
			t.Errorf("a row of %d columns has %v", len(columns), cells)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("a table has %q, want %q", got, want)
	}
}

// testFleetPages: the pages of a list are the whole list at the version of the first
// page, whatever is written in between.
func testFleetPages(t *testing.T, p *pair) {
	const n = 24
	rng := newRandom(t)
	p.fill(t, "paged", n)
	for round := range 6 {
		whole := p.still(t, "paged")
		want := whole.identities()
		limit := []int{7, 1 + rng.IntN(2*n+2)}[min(round, 1)]
		selector := ""
		if round%3 == 2 {
			selector = "color=red"
			var err error
			if want, err = p.truth(t.Context(), "paged", selector); err != nil {
				t.Fatal(err)
			}
		}
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		if selector != "" {
			query.Set("labelSelector", selector)
		}
		var got []string
		for {
			l, err := p.list(t.Context(), "paged", query)
			if err != nil {
				t.Fatalf("limit=%d after %d of %d: %v", limit, len(got), len(want), err)
			}
			if l.ResourceVersion != whole.ResourceVersion {
				t.Fatalf("a page has version %s, the list %s", l.ResourceVersion, whole.ResourceVersion)
			}
			got = append(got, l.identities()...)
			if len(l.Items) > limit || l.Continue != "" && len(l.Items) < limit {
				t.Errorf("a page of %d has %d", limit, len(l.Items))
			}
			checkRemaining(t, l, selector, len(want)-len(got))
			if l.Continue == "" {
				break
			}
			query.Set("continue", l.Continue)
			for range rng.IntN(6) {
				if err := p.change(t.Context(), rng, "paged", n); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d with selector %q have\n%q\nand the list\n%q", limit, selector, got, want)
		}
		if limit >= len(want) {
			continue
		}
		// The state is kept for other clients that continue with it, and can be read as a
		// whole too.
		l, err := p.list(t.Context(), "paged", url.Values{
			"resourceVersion":      {whole.ResourceVersion},
			"resourceVersionMatch": {"Exact"},
		})
		if err != nil || !slices.Equal(l.identities(), whole.identities()) {
			t.Errorf("the list at version %s is not what it was: %v", whole.ResourceVersion, err)
		}
	}
}

// still returns a list whose version a second list has too: nothing else was written
// meanwhile in any namespace, as API servers do by themselves.
func (p *pair) still(t *testing.T, namespace string) *page {
	t.Helper()
	for l := p.settled(t, namespace); ; {
		again := p.settled(t, namespace)
		if again.ResourceVersion == l.ResourceVersion {
			return l
		}
		l = again
	}
}

// checkRemaining: lists without a selector contain how many objects are left.
func checkRemaining(t *testing.T, l *page, selector string, left int) {
	t.Helper()
	switch told := l.RemainingItemCount; {
	case l.Continue == "" || selector != "":
		if told != nil {
			t.Errorf("remainingItemCount is %d, on the last page or with a selector", *told)
		}
	case told == nil || *told != int64(left):
		t.Errorf("remainingItemCount is %v, and there are %d", told, left)
	}
}

// testFleetTokens: a token is valid only for its own list.
func testFleetTokens(t *testing.T, p *pair) {
	p.fill(t, "tokens", 6)
	ctx := t.Context()
	first, err := p.list(ctx, "tokens", url.Values{"limit": {"4"}})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := p.clients[0].CoreV1().ConfigMaps("tokens").List(ctx, metav1.ListOptions{Limit: 4})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(first.Continue)
	if err != nil {
		t.Fatal(err)
	}
	forged := func(change func(map[string]any)) string {
		var fields map[string]any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber() // versions exceed the precision of float64
		if err := d.Decode(&fields); err != nil {
			t.Fatal(err)
		}
		change(fields)
		b, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	const here = "/fleet/api/v1/namespaces/tokens/configmaps"
	whole := &subject{
		name: "replica", root: strings.TrimSuffix(p.fleet.root, "/fleet"), token: p.fleet.token, client: p.fleet.client,
	}
	for name, c := range map[string]struct{ path, token string }{
		"cut":                    {here, first.Continue[:len(first.Continue)-3]},
		"of one letter":          {here, "a"},
		"no base64":              {here, "!!!"},
		"no version of tokens":   {here, forged(func(m map[string]any) { m["v"] = "v2" })},
		"no version":             {here, forged(func(m map[string]any) { m["rv"] = 0 })},
		"no start":               {here, forged(func(m map[string]any) { m["start"] = "" })},
		"a start that climbs":    {here, forged(func(m map[string]any) { m["start"] = "east/../x\x00" })},
		"of a cluster":           {here, cluster.Continue},
		"of another resource":    {"/fleet/api/v1/namespaces/tokens/secrets", first.Continue},
		"of another group":       {"/fleet/apis/apps/v1/deployments", first.Continue},
		"of a namespace":         {"/fleet/api/v1/configmaps", first.Continue},
		"of another namespace":   {"/fleet/api/v1/namespaces/default/configmaps", first.Continue},
		"of the fleet, not east": {"/clusters/east/api/v1/namespaces/tokens/configmaps", first.Continue},
	} {
		a := whole.send(ctx, request{
			Method: http.MethodGet,
			URI:    c.path + "?limit=4&continue=" + url.QueryEscape(c.token),
			Accept: "application/json",
		})
		if err := statusError(a); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "continue") {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	_, err = p.list(ctx, "tokens", url.Values{
		"limit":           {"4"},
		"continue":        {first.Continue},
		"resourceVersion": {first.ResourceVersion},
	})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a token and a version: %v", err)
	}
	// The number of remaining objects in a token is ignored if it is impossible.
	for _, left := range []int{-3, 2} {
		l, err := p.list(ctx, "tokens", url.Values{
			"limit":    {"4"},
			"continue": {forged(func(m map[string]any) { m["left"] = left })},
		})
		if err != nil {
			t.Fatal(err)
		}
		checkRemaining(t, l, "", 12-8)
	}
}

// testFleetExpired: a client that continues too late receives the API server's error, and
// can continue with the current state.
func testFleetExpired(t *testing.T, p *pair) {
	p.fill(t, "expired", 6)
	ctx := t.Context()
	first, err := p.list(ctx, "expired", url.Values{"limit": {"4"}})
	if err != nil {
		t.Fatal(err)
	}
	// Lists of later states replace those that clients do not continue.
	last := first.ResourceVersion
	for i := range 40 {
		if err := p.put(ctx, 1, "expired", "both-01", nil, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		p.await(t, func(ctx context.Context) error {
			l, err := p.list(ctx, "expired", url.Values{"limit": {"4"}})
			if err == nil && l.ResourceVersion == last {
				return fmt.Errorf("the version is still %s", last)
			}
			if err == nil {
				last = l.ResourceVersion
			}
			return err
		})
	}
	_, err = p.list(ctx, "expired", url.Values{"limit": {"4"}, "continue": {first.Continue}})
	var status *apierrors.StatusError
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		t.Fatalf("a token of long ago: %v", err)
	}
	if !strings.HasPrefix(status.ErrStatus.Message,
		"The provided continue parameter is too old to display a consistent list result.") ||
		status.ErrStatus.Continue == "" {
		t.Errorf("a token of long ago: %+v", status.ErrStatus)
	}
	now := p.settled(t, "expired")
	l, err := p.list(ctx, "expired", url.Values{"continue": {status.ErrStatus.Continue}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.identities(),
		now.identities()[4:]; !slices.Equal(got, want) || l.ResourceVersion != now.ResourceVersion {
		t.Errorf("going on without the state: %q at %s, want %q at %s", got, l.ResourceVersion, want,
			now.ResourceVersion)
	}
	for _, query := range []url.Values{
		{"resourceVersion": {first.ResourceVersion}, "resourceVersionMatch": {"Exact"}},
		{"resourceVersion": {first.ResourceVersion}, "limit": {"4"}},
	} {
		if _, err := p.list(ctx, "expired", query); !apierrors.IsResourceExpired(err) {
			t.Errorf("%v: %v", query, err)
		}
	}
	if l, err := p.list(ctx, "expired", url.Values{"resourceVersion": {first.ResourceVersion}}); err != nil ||
		l.ResourceVersion != now.ResourceVersion {
		t.Errorf("a list that is not older than one of long ago: %v", err)
	}
	_, err = p.list(ctx, "expired", url.Values{"resourceVersion": {strconv.FormatUint(revision(t, now)+1000, 10)}})
	// The replica has not issued this version, so it cannot be compared.
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list of the future: %v", err)
	}
}
