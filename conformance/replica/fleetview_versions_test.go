// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// testFleetWatchVersions: a watch begins at a version of the fleet, and receives an error
// for a version that the replica cannot know.
func testFleetWatchVersions(t *testing.T, p *pair) {
	p.fill(t, "versions", 3)
	now := revision(t, p.settled(t, "versions"))
	const path = "/api/v1/namespaces/versions/configmaps?watch=1&timeoutSeconds=1&resourceVersion="
	for name, version := range map[string]string{
		"of an object":  "100",
		"of before":     strconv.FormatUint(now-1_000_000_000, 10),
		"of the future": strconv.FormatUint(now+1_000_000, 10),
	} {
		a := p.fleet.watch(t.Context(), request{
			Method: http.MethodGet, URI: path + version, Accept: "application/json",
		}, patience)
		if a.err != nil || len(a.events) != 1 || a.events[0].kind != string(watch.Error) ||
			text(a.events[0].object, "reason") != "Expired" {
			t.Errorf("a version %s: %d %v %v %s", name, a.code, a.err, a.events, a.body)
		}
	}
	a := p.fleet.watch(t.Context(), request{
		Method: http.MethodGet, URI: path + "x", Accept: "application/json",
	}, patience)
	if a.code != http.StatusInternalServerError {
		t.Errorf("a version that is none: %d", a.code)
	}
	// The events come before the bookmark with their version, and it comes at once.
	s := openStream(t.Context(), p.fleet, request{
		Method: http.MethodGet,
		URI: "/api/v1/namespaces/versions/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion=" +
			strconv.FormatUint(now, 10),
		Accept: "application/json",
	})
	defer s.close()
	if err := p.put(t.Context(), 0, "versions", "fresh", nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.put(t.Context(), 1, "default", "unrelated", nil, ""); err != nil {
		t.Fatal(err)
	}
	p.await(t, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.answer.events) < 2 {
			return fmt.Errorf("there are %d events", len(s.answer.events))
		}
		return nil
	})
	time.Sleep(300 * time.Millisecond) // no other event may arrive in this time
	got := s.close().events
	if len(got) != 2 || got[0].kind != string(watch.Added) || got[1].kind != string(watch.Bookmark) {
		t.Errorf("one change of the namespace, and one elsewhere: %v", got)
	}
	if at, _ := strconv.ParseUint(text(got[1].metadata(), "resourceVersion"), 10, 64); at <= now {
		t.Errorf("the bookmark is at %d, not after %d", at, now)
	}
}

// testFleetOtherVersions: a cluster that serves a type only in another version is left
// out, of lists with a warning, and of watches too.
func testFleetOtherVersions(t *testing.T, p *pair) {
	versions := []string{"v1", "v2"}
	var clients []dynamic.NamespaceableResourceInterface
	for i, c := range p.clusters {
		manifest := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.fleet.example.com"},
			"spec":{"group":"fleet.example.com","scope":"Cluster","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget"},
			"versions":[{"name":%q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, versions[i])
		if err := c.CreateManifest(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl(t.Context(), "wait", "crd/gadgets.fleet.example.com",
			"--for=condition=Established"); err != nil {
			t.Fatal(err)
		}
		d, err := dynamic.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, d.Resource(schema.GroupVersionResource{
			Group: "fleet.example.com", Version: versions[i], Resource: "gadgets",
		}))
	}
	create := func(cluster int, name string) {
		p.await(t, func(ctx context.Context) error {
			_, err := clients[cluster].Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "fleet.example.com/" + versions[cluster], "kind": "Gadget",
				"metadata": map[string]any{"name": name},
			}}, metav1.CreateOptions{})
			return err
		})
	}
	create(0, "of-east")
	create(1, "of-west")
	for i, version := range versions {
		path := "/apis/fleet.example.com/" + version + "/gadgets"
		want := []string{"of-" + p.names[i]}
		p.await(t, func(ctx context.Context) error {
			l, err := p.read(ctx, path, nil)
			if err != nil {
				return err
			}
			if got := namesOf(l); !slices.Equal(got, want) {
				return fmt.Errorf("%s has %q", path, got)
			}
			return nil
		})
		a := p.fleet.send(t.Context(), request{Method: http.MethodGet, URI: path})
		if all := a.header.Values("Warning"); !slices.ContainsFunc(all, func(w string) bool {
			return strings.Contains(w, "left out: cluster "+p.names[1-i])
		}) {
			t.Errorf("%s warns of %q", path, all)
		}
	}
	open := make([]*stream, len(versions))
	for i, version := range versions {
		open[i] = openStream(t.Context(), p.fleet, request{
			Method: http.MethodGet,
			URI:    "/apis/fleet.example.com/" + version + "/gadgets?watch=1",
			Accept: "application/json",
		})
		defer open[i].close()
	}
	for i := range versions {
		create(i, "later-"+p.names[i])
	}
	for i, version := range versions {
		p.await(t, func(context.Context) error {
			if n, _ := open[i].seen(); n < 2 {
				return fmt.Errorf("%d events of %s", n, version)
			}
			return nil
		})
	}
	time.Sleep(300 * time.Millisecond) // no other event may arrive in this time
	for i, version := range versions {
		var got []string
		for _, e := range open[i].close().events {
			got = append(got, text(e.object, "apiVersion")+" "+text(e.metadata(), "name"))
		}
		if want := []string{
			"fleet.example.com/" + version + " of-" + p.names[i],
			"fleet.example.com/" + version + " later-" + p.names[i],
		}; !slices.Equal(got, want) {
			t.Errorf("a watch of %s tells of %q, want %q", version, got, want)
		}
	}
}

func namesOf(l *page) []string {
	var all []string
	for _, item := range l.Items {
		all = append(all, item.Name)
	}
	return all
}
