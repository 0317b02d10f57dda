// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// TestList_everyFormIsTheSame reads one state in all forms, twice each: the second time
// from the cache.
func TestList_everyFormIsTheSame(t *testing.T) {
	w := newSimulatedReplica(t, 1, 160, nil)
	want := w.truth(0)
	for range 2 {
		for name, header := range map[string][]string{
			"json":          {"Accept", "application/json", "Accept-Encoding", "identity"},
			"json+gzip":     {"Accept", "application/json", "Accept-Encoding", "gzip"},
			"protobuf":      {"Accept", protobufType, "Accept-Encoding", "identity"},
			"protobuf+gzip": {"Accept", protobufType, "Accept-Encoding", "gzip"},
			"yaml":          {"Accept", "application/yaml", "Accept-Encoding", "identity"},
			"pretty":        {"Accept", "application/json;pretty=1", "Accept-Encoding", "identity"},
		} {
			body, head := w.read(w.pods(0), header...)
			if zipped := head.Get("Content-Encoding") == "gzip"; zipped != strings.HasSuffix(name, "gzip") {
				t.Errorf("%s: compressed: %v", name, zipped)
			} else if zipped {
				body = gunzip(t, body)
			}
			if name == "yaml" {
				var err error
				if body, err = yaml.YAMLToJSON(body); err != nil {
					t.Fatal(err)
				}
			}
			list, err := decodeList(body)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compare(t, name, list.Items, want)
			if !slices.IsSortedFunc(list.Items, func(a, b corev1.Pod) int {
				return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
			}) {
				t.Errorf("%s is not in the order of keys", name)
			}
		}
	}
}

func gunzip(t *testing.T, body []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// compare reports differences between the objects that were read and those that exist.
func compare(t *testing.T, what string, got []corev1.Pod, want map[string]*corev1.Pod) {
	t.Helper()
	seen := map[string]bool{}
	for i := range got {
		p := &got[i]
		key := p.Namespace + "/" + p.Name
		if seen[key] {
			t.Errorf("%s: %s is there twice", what, key)
		}
		seen[key] = true
		is := want[key]
		if is == nil {
			t.Errorf("%s: %s is not in the cluster", what, key)
			continue
		}
		is, p = is.DeepCopy(), p.DeepCopy()
		is.TypeMeta = p.TypeMeta
		sortFields(t, is)
		sortFields(t, p)
		if !equality.Semantic.DeepEqual(is, p) {
			t.Fatalf("%s: %s differs:\n%s", what, key, cmp.Diff(is, p))
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%s has %d objects, the cluster %d", what, len(seen), len(want))
	}
}

// sortFields sorts managed fields, whose order is lost in YAML.
func sortFields(t *testing.T, p *corev1.Pod) {
	for i := range p.ManagedFields {
		var value any
		if err := json.Unmarshal(p.ManagedFields[i].FieldsV1.GetRawBytes(), &value); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		p.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1(string(raw))
	}
}

func TestList_pagesAreOfOneState(t *testing.T) {
	w := newSimulatedReplica(t, 1, 350, nil)
	c := w.clusters.Cluster(0)
	for _, accept := range []string{"application/json", protobufType} {
		want := w.truth(0)
		var all []corev1.Pod
		token, pages := "", 0
		for {
			body, _ := w.read(w.pods(0)+"?limit=40&continue="+url.QueryEscape(token), "Accept", accept)
			list, err := decodeList(body)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, list.Items...)
			pages++
			left := int64(len(want) - len(all))
			if got := list.RemainingItemCount; left > 0 && (got == nil || *got != left) || left == 0 && got != nil {
				t.Errorf("after %d objects %v remain, want %d", len(all), got, left)
			}
			if token = list.Continue; token == "" {
				break
			}
			for i := range 50 { // changes between pages are not in the next page
				c.Touch((i * 13) % c.Pods())
			}
			c.Delete(pages)
			w.awaitVersion(0, c.Version())
		}
		if pages < 7 {
			t.Errorf("%d pages", pages)
		}
		compare(t, accept, all, want)
	}
}

// awaitVersion waits until the replica has a version.
func (w *simulatedReplica) awaitVersion(cluster int, version uint64) {
	w.t.Helper()
	w.read(w.pods(cluster) + "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=" + uitoa(version))
}

// TestList_byColumn lists by labels often enough that the store has columns of them, in
// all forms and in pages, while pods change and are deleted.
func TestList_byColumn(t *testing.T) {
	w := newSimulatedReplica(t, 1, 800, nil)
	c := w.clusters.Cluster(0)
	for round := range 6 {
		all := w.truth(0)
		byName := map[string]map[string]*corev1.Pod{}
		for key, p := range all {
			name := p.Labels["app.kubernetes.io/name"]
			if byName[name] == nil {
				byName[name] = map[string]*corev1.Pod{}
			}
			byName[name][key] = p
		}
		name := slices.Sorted(maps.Keys(byName))[round%2]
		path := w.pods(0) + "?labelSelector=" + url.QueryEscape("app.kubernetes.io/name="+name)
		for _, accept := range []string{"application/json", protobufType, "application/json;pretty=1"} {
			body, _ := w.read(path, "Accept", accept)
			list, err := decodeList(body)
			if err != nil {
				t.Fatalf("%s as %s: %v", name, accept, err)
			}
			compare(t, name+" as "+accept, list.Items, byName[name])
		}
		var paged []corev1.Pod
		for token := ""; ; {
			body, _ := w.read(path + "&limit=3&continue=" + url.QueryEscape(token))
			list, err := decodeList(body)
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, list.Items...)
			if token = list.Continue; token == "" || len(paged) > len(all) {
				break
			}
		}
		compare(t, name+" in pages", paged, byName[name])
		for i := range 50 {
			c.Touch((i * 13) % c.Pods())
		}
		c.Delete(round)
		w.awaitVersion(0, c.Version())
	}
}

func TestList_selected(t *testing.T) {
	w := newSimulatedReplica(t, 1, 200, nil)
	all := w.truth(0)
	values := map[string]int{}
	for _, p := range all {
		for k, v := range p.Labels {
			values[k+"="+v]++
		}
	}
	// A common label, a rare one, and two that no object has.
	labels := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return values[b] - values[a] })
	for _, selector := range []string{labels[0], labels[len(labels)-1], labels[len(labels)/2], "nobody=x", "!nobody"} {
		want := map[string]*corev1.Pod{}
		for key, p := range all {
			k, v, _ := strings.Cut(selector, "=")
			if p.Labels[k] == v && v != "" || selector == "!nobody" {
				want[key] = p
			}
		}
		for range 2 {
			for _, accept := range []string{"application/json", protobufType} {
				body, _ := w.read(w.pods(0)+"?labelSelector="+url.QueryEscape(selector), "Accept", accept)
				list, err := decodeList(body)
				if err != nil {
					t.Fatalf("%s as %s: %v", selector, accept, err)
				}
				compare(t, selector+" as "+accept, list.Items, want)
			}
		}
	}
}
