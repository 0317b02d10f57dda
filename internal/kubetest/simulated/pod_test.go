// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// flat returns every value of a pod by its path.
func flat(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, e := range v {
				walk(path+"."+key, e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), e)
			}
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	walk("", v)
	return out
}

// different returns the paths at which two pods differ, apart from the version.
func different(t *testing.T, a, b *corev1.Pod) []string {
	t.Helper()
	x, y := flat(t, a), flat(t, b)
	paths := map[string]bool{}
	for path := range x {
		paths[path] = x[path] != y[path]
	}
	for path := range y {
		paths[path] = x[path] != y[path]
	}
	maps.DeleteFunc(paths, func(path string, differs bool) bool {
		return !differs || path == ".metadata.resourceVersion"
	})
	return slices.Sorted(maps.Keys(paths))
}

// origins returns the numbers of a workload's pods by key.
func origins(w kubetest.Workload, n int) map[string]int {
	all := map[string]int{}
	for i := range n {
		pod := w.Pod(i)
		all[pod.Namespace+"/"+pod.Name] = i
	}
	return all
}

func TestPod_differsWhereAWorkloadsDoes(t *testing.T) {
	const n = 200
	s := start(t, &simulated.Options{Clusters: 2, Pods: n, Namespaces: 7})
	w := [2]kubetest.Workload{{Seed: 11, Namespaces: 7}, {Seed: 12, Namespaces: 7}}
	origin := origins(w[0], n)
	type pods struct{ got, want [2]*corev1.Pod }
	at := func(i int) pods {
		var p pods
		for c := range 2 {
			p.got[c] = s.Cluster(c).Pod(i)
			number, ok := origin[p.got[c].Namespace+"/"+p.got[c].Name]
			if !ok {
				t.Fatalf("the workload has no pod %s/%s", p.got[c].Namespace, p.got[c].Name)
			}
			p.want[c] = w[c].Pod(number)
		}
		return p
	}
	check := func(what string, i int, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s, pod %d: differ at\n%s\nwant\n%s", what, i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// Values of few digits are sometimes equal by chance: these are counted.
	few := regexp.MustCompile(`cost-unit|\.image$|nodeName|volumes`)
	counts := map[string][2]int{}
	compare := func(what string, i int, got, want []string) {
		t.Helper()
		for side, paths := range [][]string{got, want} {
			for _, path := range paths {
				if few.MatchString(path) {
					n := counts[what+path]
					n[side]++
					counts[what+path] = n
				}
			}
		}
		chance := func(path string) bool { return few.MatchString(path) }
		check(what, i, slices.DeleteFunc(got, chance), slices.DeleteFunc(want, chance))
	}
	for i := range n - 1 {
		p, q := at(i), at(i+1)
		compare("two clusters", i, different(t, p.got[0], p.got[1]), different(t, p.want[0], p.want[1]))
		compare("two pods", i, different(t, p.got[0], q.got[0]), different(t, p.want[0], q.want[0]))
	}
	for what, count := range counts {
		if d := count[0] - count[1]; d < -n/10 || d > n/10 {
			t.Errorf("%s: %d times different, want about %d", what, count[0], count[1])
		}
	}
}

func TestPod_isLikeAWorkloads(t *testing.T) {
	const n = 100
	s := start(t, &simulated.Options{Clusters: 2, Pods: n})
	w := kubetest.Workload{}
	origin := origins(w, n)
	// Random values have the form of the original, and the most common length.
	random := regexp.MustCompile(`[0-9a-f]`)
	volume := regexp.MustCompile(`kube-api-access-\w{5}`)
	numbers := regexp.MustCompile(`(node-|cu-|:\d\.|10\.|192\.168\.)\d[\d.]*`)
	form := func(s string) string {
		s = volume.ReplaceAllString(numbers.ReplaceAllString(s, "#"), "volume")
		if len(s) >= 36 {
			s = random.ReplaceAllString(s, "#")
		}
		return s
	}
	last := ""
	for i := range n {
		got := s.Cluster(1).Pod(i)
		key := got.Namespace + "/" + got.Name
		if key <= last {
			t.Errorf("pod %d, %s, comes after %s", i, key, last)
		}
		last = key
		want := w.Pod(origin[key])
		want.TypeMeta, want.ResourceVersion = got.TypeMeta, got.ResourceVersion
		g, x := flat(t, got), flat(t, want)
		for path := range x {
			if !strings.Contains(path, "ime") && form(g[path]) != form(x[path]) ||
				strings.Contains(path, "ime") && g[path] != x[path] {
				t.Fatalf("pod %d has %q at %s, want something like %q", i, g[path], path, x[path])
			}
		}
		if len(g) != len(x) {
			t.Errorf("pod %d has %d values, want %d", i, len(g), len(x))
		}
	}
}

func TestPod_isTheSameInEveryForm(t *testing.T) {
	s := start(t, &simulated.Options{Pods: 60})
	c := s.Cluster(0)
	c.Touch(7)
	c.Delete(8)
	c.Create(8)
	c.Touch(8)
	sub := newSubject(t, "simulated", c.Config())
	list := func(accept string) []any { return items(sub.ask(t, request{target: "/api/v1/pods", accept: accept})) }
	json, protobuf := list(asJSON), list(asProtobuf)
	partials := [][]any{list(asJSON + partialList), list(asProtobuf + partialList)}
	if len(json) != 60 || len(protobuf) != 60 {
		t.Fatalf("%d pods in JSON, %d in protobuf", len(json), len(protobuf))
	}
	for i := range 60 {
		if !reflect.DeepEqual(json[i], protobuf[i]) {
			t.Errorf("pod %d is not the same in JSON and in protobuf", i)
		}
		for _, p := range partials {
			if !reflect.DeepEqual(field(p[i], "metadata"), field(json[i], "metadata")) {
				t.Errorf("pod %d has other metadata when asked for metadata only", i)
			}
		}
		pod := c.Pod(i)
		for _, accept := range []string{asJSON, asProtobuf} {
			one := sub.ask(t, request{
				target: "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name, accept: accept,
			}).Body.([]any)[0]
			for _, part := range []string{"metadata", "spec", "status"} {
				if !reflect.DeepEqual(field(one, part), field(json[i], part)) {
					t.Errorf("pod %d is not the same alone: %s", i, part)
				}
			}
		}
	}
}

func TestTouch_changesStatusAndVersion(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 20}).Cluster(0)
	before := c.Pod(3)
	version := c.Touch(3)
	after := c.Pod(3)
	if got := fmt.Sprint(version); after.ResourceVersion != got {
		t.Errorf("version is %s, Touch said %s", after.ResourceVersion, got)
	}
	paths := different(t, before, after)
	want := []string{
		".metadata.managedFields[1].time", ".status.conditions[2].lastTransitionTime",
		".status.conditions[3].lastTransitionTime",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("a touch changes %v, want %v", paths, want)
	}
	c.Touch(3)
	if again := different(t, after, c.Pod(3)); !slices.Equal(again, want) {
		t.Errorf("another touch changes %v, want %v", again, want)
	}
}

func TestCreate_makesAnotherPod(t *testing.T) {
	c := start(t, &simulated.Options{Pods: 20}).Cluster(0)
	before := c.Pod(3)
	if c.Create(3) != 0 {
		t.Error("a pod that is there was created")
	}
	if c.Delete(3) == 0 || c.Pod(3) != nil {
		t.Error("a deleted pod is still there")
	}
	if c.Delete(3) != 0 || c.Touch(3) != 0 {
		t.Error("a deleted pod was changed")
	}
	version := c.Create(3)
	after := c.Pod(3)
	if after.ResourceVersion != fmt.Sprint(version) || after.UID == before.UID || after.Name != before.Name {
		t.Errorf("the pod is %s %s at %s, was %s %s", after.Name, after.UID, after.ResourceVersion, before.Name,
			before.UID)
	}
	if !after.CreationTimestamp.After(before.CreationTimestamp.Time) {
		t.Errorf("created at %s, before that at %s", after.CreationTimestamp, before.CreationTimestamp)
	}
}

// TestPods_compressLikeAWorkloads compares how well the pods compress.
func TestPods_compressLikeAWorkloads(t *testing.T) {
	const n = 1000
	c := start(t, &simulated.Options{Pods: n}).Cluster(0)
	w := kubetest.Workload{Seed: 5}
	origin := origins(w, n)
	var got, want bytes.Buffer
	for _, b := range []struct {
		out *bytes.Buffer
		pod func(i int) *corev1.Pod
	}{
		{&got, c.Pod},
		{&want, func(i int) *corev1.Pod {
			pod := c.Pod(i)
			version := pod.ResourceVersion
			pod = w.Pod(origin[pod.Namespace+"/"+pod.Name])
			pod.ResourceVersion = version
			return pod
		}},
	} {
		z := gzip.NewWriter(b.out)
		for i := range n {
			raw, err := b.pod(i).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := z.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ratio := float64(got.Len()) / float64(want.Len())
	t.Logf("%d bytes compressed, a workload's %d", got.Len(), want.Len())
	if ratio < 0.95 || ratio > 1.05 {
		t.Errorf("the pods are %d bytes compressed, those of a workload %d", got.Len(), want.Len())
	}
}
