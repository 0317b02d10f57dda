// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// recording is the pods of all clusters after each change, and the changes.
type recording struct {
	states  []recordedState
	changes []string
}

// recordedState is the versions of all pods, by cluster, namespace and name, at a time.
type recordedState struct {
	at   time.Time
	pods map[string]string
}

// versions returns the versions of all pods of some clusters.
func (w *simulatedReplica) versions(clusters int) map[string]string {
	all := map[string]string{}
	for i := range clusters {
		for key, pod := range w.truth(i) {
			all[w.clusters.Cluster(i).Name()+"/"+key] = pod.ResourceVersion
		}
	}
	return all
}

// change makes a random change in a random cluster, waits until its copy has it, and records it.
func (w *simulatedReplica) change(r *rand.Rand, f *fleet.Fleet, clusters int, into *recording) {
	w.t.Helper()
	c := w.clusters.Cluster(r.IntN(clusters))
	i := r.IntN(c.Pods())
	kind, change := "MODIFIED", c.Touch
	switch pod := c.Pod(i); {
	case pod == nil:
		kind, change = "ADDED", c.Create
	case r.IntN(4) == 0:
		kind, change = "DELETED", c.Delete
	}
	version := change(i)
	m, _ := f.Member(c.Name())
	feed, ok := m.Feed(schema.GroupResource{Resource: "pods"})
	if !ok {
		w.t.Fatal("there is no copy of pods")
	}
	_, err := feed.Wait(w.t.Context(), version)
	expect.NoError(w.t, err)
	expect.Soon(w.t, "the change in the files", func() bool {
		_, err := feed.AtVersion(w.t.Context(), version)
		return err == nil
	})
	into.changes = append(into.changes, fmt.Sprint(c.Name(), " ", kind, " ", version))
	into.states = append(into.states, recordedState{time.Now(), w.versions(clusters)})
}

// past returns the pods of the fleet at a time, by cluster, namespace and name, in pages of a
// length.
func (w *simulatedReplica) past(at string, limit int) (map[string]string, http.Header) {
	w.t.Helper()
	all, query := map[string]string{}, url.Values{"at": {at}, "limit": {strconv.Itoa(limit)}}
	for {
		body, header := w.read("/fleet/api/v1/pods?" + query.Encode())
		var list corev1.PodList
		expect.NoError(w.t, json.Unmarshal(body, &list))
		if list.ResourceVersion != "" {
			w.t.Errorf("a list of the past has the version %s, from which nothing can be watched", list.ResourceVersion)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			all[pod.Annotations["watershed.dev/cluster"]+"/"+pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
		}
		if list.Continue == "" {
			return all, header
		}
		query.Set("continue", list.Continue)
	}
}

// stored waits until the files have a state of all clusters.
func (w *simulatedReplica) stored(clusters int) {
	w.t.Helper()
	for i := range clusters {
		path := w.pods(i) + "?at=" + url.QueryEscape(time.Now().Format(time.RFC3339Nano))
		expect.Soon(w.t, "the first state in the files", func() bool {
			_, _, err := w.whole(path)
			return err == nil
		})
	}
}

// TestFleetPast makes random changes in two clusters and, after a restart that a third one joins,
// in three. What the fleet says about the past must be what was recorded.
func TestFleetPast(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: 3, Pods: 12})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	for i := range 3 {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	path, third := t.TempDir(), s.Cluster(2).Name()
	var two, three recording
	var began time.Time
	t.Run("before", func(t *testing.T) {
		w, f, _ := serveStored(t, s, entries[:2], openFiles(t, path), nil)
		expect.NoError(t, f.WaitForSync(t.Context()))
		w.stored(2)
		began = time.Now()
		for range 25 {
			w.change(r, f, 2, &two)
		}
		w.checkRecording(&two, began)
	})
	t.Run("after", func(t *testing.T) {
		w, f, _ := serveStored(t, s, entries, openFiles(t, path), nil)
		expect.NoError(t, f.WaitForSync(t.Context()))
		w.stored(3)
		joined := time.Now()
		for range 25 {
			w.change(r, f, 3, &three)
		}
		w.checkRecording(&three, joined)

		at := two.states[r.IntN(len(two.states))]
		got, header := w.past(at.at.Format(time.RFC3339Nano), 500)
		if !maps.Equal(got, at.pods) ||
			!strings.Contains(strings.Join(header.Values("Warning"), "\n"),
				"left out: cluster "+third+": the past of pods begins at") {
			t.Errorf("before the third cluster: %v, want %v, %v", got, at.pods, header)
		}
		list := w.changesOf("changes=" + url.QueryEscape(began.Format(time.RFC3339Nano)))
		expect.Equal(t, summaries(list), append(slices.Clone(two.changes), three.changes...))
		if len(list.Clusters) != 1 || list.Clusters[0].Name != third || list.Clusters[0].Since == nil ||
			!list.Clusters[0].Since.After(began) {
			t.Errorf("the clusters with less are %+v", list.Clusters)
		}
		w.checkPastSelection(&three)
	})
}

// TestFleetPast_shorter counts the changes of a day of clusters whose past has just begun, and those
// since the past began.
func TestFleetPast_shorter(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 3})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var entries []fleet.Entry
	for i := range 2 {
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	started := time.Now()
	w, f, _ := serveStored(t, s, entries, openFiles(t, t.TempDir()), nil)
	expect.NoError(t, f.WaitForSync(t.Context()))
	w.stored(2)
	now := time.Now()
	count := func(root string, since time.Time) (numbers document.ChangeSummary) {
		body, _ := w.read(root + "/changes?since=" + url.QueryEscape(since.Format(time.RFC3339Nano)))
		expect.NoError(t, json.Unmarshal(body, &numbers))
		return numbers
	}
	begins := func(what string, at time.Time) {
		if at.Before(started) || at.After(now) {
			t.Errorf("%s: the past begins at %v, want a time from %v to %v", what, at, started, now)
		}
	}
	cluster, day := "/clusters/"+s.Cluster(1).Name(), started.Add(-24*time.Hour)
	begins(cluster, count(cluster, day).Since)
	all := count("/fleet", day)
	begins("/fleet", all.Since)
	if len(all.Clusters) != 2 {
		t.Errorf("the clusters whose past begins later are %+v, want both", all.Clusters)
	}
	for _, c := range all.Clusters {
		if c.Since == nil {
			t.Errorf("%s: it is not said when the past begins", c.Name)
			continue
		}
		begins(c.Name, *c.Since)
	}
	for _, root := range []string{cluster, "/fleet"} {
		if got := count(root, now); !got.Since.Equal(now) || len(got.Clusters) > 0 {
			t.Errorf("%s: since %v, %+v, want %v and no clusters", root, got.Since, got.Clusters, now)
		}
	}
}

// changesOf returns the changes of pods of the fleet.
func (w *simulatedReplica) changesOf(query string) (list document.ChangeList) {
	w.t.Helper()
	body, _ := w.read("/fleet/api/v1/pods?" + query)
	expect.NoError(w.t, json.Unmarshal(body, &list))
	return list
}

// summaries returns the changes of a list in short.
func summaries(list document.ChangeList) (all []string) {
	for _, c := range list.Items {
		all = append(all, fmt.Sprint(c.Cluster, " ", c.Type, " ", c.ResourceVersion))
	}
	return all
}

// checkRecording compares states, changes, numbers of changes and single pods with a recording.
func (w *simulatedReplica) checkRecording(all *recording, began time.Time) {
	w.t.Helper()
	for i, state := range all.states {
		at := state.at.Format(time.RFC3339Nano)
		got, _ := w.past(at, []int{3, 7, 500}[i%3])
		if !maps.Equal(got, state.pods) {
			w.t.Errorf("at %s: %v, want %v", at, got, state.pods)
		}
	}
	since := url.QueryEscape(began.Format(time.RFC3339Nano))
	list := w.changesOf("changes=" + since)
	expect.Equal(w.t, summaries(list), all.changes)
	one := list.Items[0]
	body, _ := w.read("/fleet/api/v1/namespaces/" + one.Namespace + "/pods/" + one.Name + "?changes=" + since)
	var same []string
	for _, c := range list.Items {
		if c.Namespace == one.Namespace && c.Name == one.Name {
			same = append(same, fmt.Sprint(c.Cluster, " ", c.Type, " ", c.ResourceVersion))
		}
	}
	var of document.ChangeList
	expect.NoError(w.t, json.Unmarshal(body, &of))
	expect.Equal(w.t, summaries(of), same)

	want := map[string]int{}
	for _, change := range all.changes {
		want[change[:strings.LastIndex(change, " ")]]++
	}
	body, _ = w.read("/fleet/changes?by=cluster,type&since=" + since)
	var numbers document.ChangeSummary
	expect.NoError(w.t, json.Unmarshal(body, &numbers))
	got := map[string]int{}
	for _, n := range numbers.Items {
		got[n.Cluster+" "+n.Type] = n.Count
	}
	expect.Equal(w.t, got, want)
	if len(numbers.Clusters) > 0 || numbers.Hidden > 0 || numbers.Missing > 0 {
		w.t.Errorf("something is hidden or missing: %+v", numbers)
	}
}

// checkPastSelection selects clusters, and sends requests that cannot be answered.
func (w *simulatedReplica) checkPastSelection(all *recording) {
	w.t.Helper()
	last := all.states[len(all.states)-1]
	at := "at=" + url.QueryEscape(last.at.Format(time.RFC3339Nano))
	first := w.clusters.Cluster(0).Name()
	selector := "&labelSelector=" + url.QueryEscape("watershed.dev/cluster="+first)
	body, _ := w.read("/fleet/api/v1/pods?" + at + selector)
	var list corev1.PodList
	expect.NoError(w.t, json.Unmarshal(body, &list))
	want := 0
	for key := range last.pods {
		if strings.HasPrefix(key, first+"/") {
			want++
		}
	}
	expect.Equal(w.t, len(list.Items), want)
	for _, change := range w.changesOf("changes=1h" + selector).Items {
		expect.Equal(w.t, change.Cluster, first)
	}
	for query, want := range map[string]int{
		"?changes=1h&labelSelector=app%3Dx": http.StatusBadRequest, "?at=2000h": http.StatusGone,
		"?at=1s&watch=1":           http.StatusBadRequest,
		"?at=1s&resourceVersion=5": http.StatusBadRequest, "?" + at + "&continue=" + tokenOfTomorrow(): http.StatusGone,
	} {
		response, err := w.get(w.t.Context(), "/fleet/api/v1/pods"+query)
		expect.NoError(w.t, err)
		response.Body.Close()
		if response.StatusCode != want {
			w.t.Errorf("%s: %s, want %d", query, response.Status, want)
		}
	}
}

// tokenOfTomorrow returns a continue token of a list of the past that does not exist yet.
func tokenOfTomorrow() string {
	text := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"simulated-00000/a\u0000","of":"at /pods"}`,
		time.Now().Add(24*time.Hour).UnixNano())
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// allowOnly returns a hook that permits requests for one namespace in all clusters, and for all
// namespaces, and the numbers of changes, in some of them.
func allowOnly(everything ...string) func(*http.Request, *replica.Request) (*replica.Access, error) {
	allows := func(q *replica.Request, m *fleet.Member) bool {
		return q.Attributes().Namespace != "" || m != nil && slices.Contains(everything, m.Name())
	}
	return func(_ *http.Request, q *replica.Request) (*replica.Access, error) {
		if !q.Fleet && !allows(q, q.Member) {
			return nil, apierrors.NewForbidden(q.GroupResource(), "", nil)
		}
		return &replica.Access{
			Caller: "ann", User: "ann", CanSee: func(m *fleet.Member) bool { return allows(q, m) },
		}, nil
	}
}

// TestPast_namespaceMayBeAnother reads the past of a namespace, whose copy is then not current any
// more: the namespace may have been deleted and created again since, for others.
func TestPast_namespaceMayBeAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	var refuses atomic.Bool
	var entries []fleet.Entry
	for i := range 2 {
		o := newOrigin(t, s.Cluster(i))
		o.answers(func(w http.ResponseWriter, r *http.Request) bool {
			refused := refuses.Load() && strings.HasSuffix(r.URL.Path, "/namespaces")
			if refused {
				http.Error(w, "{}", http.StatusServiceUnavailable)
			}
			return refused
		})
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: o.config})
	}
	opts := &replica.Options{Authorize: allowOnly(s.Cluster(0).Name())}
	w, f, _ := serveResources(t, s, entries, openFiles(t, t.TempDir()), []string{"pods", "namespaces"}, opts)
	expect.NoError(t, f.WaitForSync(t.Context()))
	namespace := s.Cluster(0).Pod(0).Namespace
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	at := "?at=" + url.QueryEscape(time.Now().Format(time.RFC3339Nano))
	codes := func(query string) (all [3]int) {
		for i, root := range []string{
			"/clusters/" + s.Cluster(0).Name(), "/clusters/" + s.Cluster(1).Name(), "/fleet",
		} {
			all[i], _, _ = w.ask(root + pods + query)
		}
		return all
	}
	ok, no := http.StatusOK, http.StatusForbidden
	expect.Soon(t, "the past of the namespace", func() bool { return codes(at) == [3]int{ok, ok, ok} })
	var both, one corev1.PodList
	body, _ := w.read("/fleet" + pods + at)
	expect.NoError(t, json.Unmarshal(body, &both))
	expect.Equal(t, codes("?changes=1m"), [3]int{ok, ok, ok})

	refuses.Store(true)
	for i := range 2 {
		s.Cluster(i).Cut()
	}
	expect.Soon(t, "the copy of the namespaces is not current", func() bool { return codes(at) == [3]int{ok, no, ok} })
	expect.Equal(t, codes("?changes=1m"), [3]int{ok, no, ok})
	body, header := w.read("/fleet" + pods + at)
	expect.NoError(t, json.Unmarshal(body, &one))
	if len(one.Items) == 0 || len(one.Items) >= len(both.Items) ||
		!strings.Contains(strings.Join(header.Values("Warning"), "\n"), "left out: cluster "+s.Cluster(1).Name()) {
		t.Errorf("%d of %d pods, %v", len(one.Items), len(both.Items), header)
	}
	var changes document.ChangeList
	body, _ = w.read("/fleet" + pods + "?changes=1m")
	expect.NoError(t, json.Unmarshal(body, &changes))
	if len(changes.Clusters) != 2 || changes.Clusters[1].Name != s.Cluster(1).Name() ||
		changes.Clusters[1].Since != nil || changes.Clusters[1].Message == "" {
		t.Errorf("the clusters with less are %+v", changes.Clusters)
	}

	// The numbers are of the resources that may be listed in all namespaces.
	var numbers document.ChangeSummary
	body, _ = w.read("/fleet/changes?since=1m&by=cluster")
	expect.NoError(t, json.Unmarshal(body, &numbers))
	for _, n := range numbers.Items {
		expect.Equal(t, n.Cluster, s.Cluster(0).Name())
	}
}
