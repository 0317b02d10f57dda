// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
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

// entriesOf returns the clusters of a server as they are.
func entriesOf(s *simulated.Server, clusters int) (all []fleet.Entry) {
	for i := range clusters {
		all = append(all, fleet.Entry{Name: s.Cluster(i).Name(), Config: s.Cluster(i).Config()})
	}
	return all
}

// answerNamespaces makes an origin answer lists of namespaces itself: the one with a name has been
// created at a time. Watches bring nothing.
func (o *origin) answerNamespaces(name string, created time.Time) {
	o.answers(func(w http.ResponseWriter, r *http.Request) bool {
		switch query := r.URL.Query(); {
		case r.URL.Path != "/api/v1/namespaces":
			return false
		case query.Has("sendInitialEvents"):
			status := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil).Status()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
		case query.Has("watch"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w,
				`{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":%q,"resourceVersion":"5","creationTimestamp":%q}}]}`,
				name, created.UTC().Format(time.RFC3339))
		}
		return true
	})
}

// TestPast_ofAnEarlierNamespace reads the past of a namespace whose objects are older than it: they
// are from an earlier namespace of the same name, and the copy was not current when that was
// deleted. Only callers that may read all namespaces receive them.
func TestPast_ofAnEarlierNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	pod := s.Cluster(0).Pod(0)
	var entries []fleet.Entry
	for i := range 2 {
		o := newOrigin(t, s.Cluster(i))
		o.answerNamespaces(pod.Namespace, time.Now().Add(-time.Hour))
		entries = append(entries, fleet.Entry{Name: s.Cluster(i).Name(), Config: o.config})
	}
	opts := &replica.Options{Authorize: allowOnly(s.Cluster(0).Name())}
	w, f, _ := serveResources(t, s, entries, openFiles(t, t.TempDir()), []string{"pods", "namespaces"}, opts)
	expect.NoError(t, f.WaitForSync(t.Context()))
	w.stored(1)
	for i := range 2 {
		version := s.Cluster(i).Touch(0)
		m, _ := f.Member(s.Cluster(i).Name())
		feed, _ := m.Feed(schema.GroupResource{Resource: "pods"})
		expect.Soon(t, "the change in the files", func() bool {
			_, err := feed.AtVersion(t.Context(), version)
			return err == nil
		})
	}
	pods := "/api/v1/namespaces/" + pod.Namespace + "/pods"
	at := "at=" + url.QueryEscape(time.Now().Format(time.RFC3339Nano))
	for path, want := range map[string][3]int{
		pods + "?" + at: {200, 403, 200}, pods + "/" + pod.Name + "?" + at: {200, 403, 200},
		pods + "?changes=30m": {200, 200, 200},
	} {
		expect.Soon(t, "the past of the namespace", func() bool {
			code, _, _ := w.ask("/clusters/" + s.Cluster(0).Name() + path)
			return code == http.StatusOK
		})
		for i, root := range []string{
			"/clusters/" + s.Cluster(0).Name(), "/clusters/" + s.Cluster(1).Name(), "/fleet",
		} {
			if code, _, status := w.ask(root + path); code != want[i] {
				t.Errorf("%s%s: %d %s, want %d", root, path, code, status.Message, want[i])
			}
		}
	}
	body, header := w.read("/fleet" + pods + "?" + at)
	var list corev1.PodList
	expect.NoError(t, json.Unmarshal(body, &list))
	for i := range list.Items {
		expect.Equal(t, list.Items[i].Annotations["watershed.dev/cluster"], s.Cluster(0).Name())
	}
	if len(list.Items) == 0 ||
		!strings.Contains(strings.Join(header.Values("Warning"), ""), "left out: cluster "+s.Cluster(1).Name()) {
		t.Errorf("%d pods, %v", len(list.Items), header)
	}
	for root, want := range map[string][]string{
		"/clusters/" + s.Cluster(1).Name(): nil,
		"/fleet":                           {s.Cluster(0).Name()},
	} {
		var changes document.ChangeList
		body, _ := w.read(root + pods + "?changes=30m")
		expect.NoError(t, json.Unmarshal(body, &changes))
		var clusters []string
		for _, c := range changes.Items {
			clusters = append(clusters, c.Cluster)
		}
		expect.Equal(t, clusters, want)
	}
}

// TestPast_pages reads a list of the past in pages: each says of when it is.
func TestPast_pages(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 3})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	w, f, _ := serveStored(t, s, entriesOf(s, 1), openFiles(t, t.TempDir()), nil)
	expect.NoError(t, f.WaitForSync(t.Context()))
	w.stored(1)
	query := url.Values{"at": {time.Now().Format(time.RFC3339Nano)}, "limit": {"2"}}
	var of []string
	for {
		body, header := w.read(w.pods(0) + "?" + query.Encode())
		of = append(of, header.Get("Watershed-State-Time"))
		var list corev1.PodList
		expect.NoError(t, json.Unmarshal(body, &list))
		if list.Continue == "" {
			break
		}
		query.Set("continue", list.Continue)
	}
	if len(of) != 2 || of[0] == "" || of[1] != of[0] {
		t.Errorf("the pages are of %q", of)
	}
}

// TestFleetChanges_undecided counts changes while the rights to list cannot be decided.
func TestFleetChanges_undecided(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 3})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	opts := &replica.Options{Authorize: func(_ *http.Request, q *replica.Request) (*replica.Access, error) {
		if q.Attributes().Verb == "list" {
			return nil, apierrors.NewServiceUnavailable("no cluster decided")
		}
		return &replica.Access{Caller: "ann", User: "ann", CanSee: func(*fleet.Member) bool { return true }}, nil
	}}
	w, f, _ := serveStored(t, s, entriesOf(s, 2), openFiles(t, t.TempDir()), opts)
	expect.NoError(t, f.WaitForSync(t.Context()))
	var numbers document.ChangeSummary
	expect.Soon(t, "the numbers of changes", func() bool {
		body, _, err := w.whole("/fleet/changes?since=1m")
		return err == nil && json.Unmarshal(body, &numbers) == nil
	})
	if len(numbers.Items) != 0 || len(numbers.Clusters) != 2 || numbers.Clusters[0].Hidden == 0 {
		t.Errorf("%+v", numbers)
	}
	for range 20 {
		if code, _, _ := w.ask("/clusters/" + s.Cluster(0).Name() +
			"/changes?since=1m"); code != http.StatusServiceUnavailable {
			t.Fatalf("the cluster answers %d", code)
		}
	}
}

// TestFleetChanges_withoutFiles counts changes that are not stored.
func TestFleetChanges_withoutFiles(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 3})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	w, f, _ := serveStored(t, s, entriesOf(s, 2), nil, nil)
	expect.NoError(t, f.WaitForSync(t.Context()))
	code, _, status := w.ask("/fleet/changes?since=1m")
	if code != http.StatusBadRequest || !strings.Contains(status.Message, "--data-dir") {
		t.Errorf("%d %s", code, status.Message)
	}
}

// TestFleetPast_busyClusters reads the changes of more clusters than one response may have, if they
// have many changes, and of as many as it may have.
func TestFleetPast_busyClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	const clusters, changesOfEach = 66, 100
	s, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: 3})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	w, f, _ := serveStored(t, s, entriesOf(s, clusters), openFiles(t, t.TempDir()), nil)
	expect.NoError(t, f.WaitForSync(t.Context()))
	w.stored(clusters)
	began := time.Now()
	for i := range clusters {
		m, _ := f.Member(s.Cluster(i).Name())
		feed, _ := m.Feed(schema.GroupResource{Resource: "pods"})
		for n := range changesOfEach { // more than a small part
			version := s.Cluster(i).Touch(n % 3)
			_, err := feed.Wait(t.Context(), version)
			expect.NoError(t, err)
		}
	}
	changes := "?changes=" + url.QueryEscape(began.Format(time.RFC3339Nano))
	code, _, status := w.ask("/fleet/api/v1/pods" + changes)
	if code != http.StatusBadRequest ||
		!strings.Contains(status.Message, "select an object, a shorter period, or clusters") {
		t.Errorf("%d %s", code, status.Message)
	}
	var names []string
	for i := range 20 {
		names = append(names, s.Cluster(i).Name())
	}
	selector := "&labelSelector=" + url.QueryEscape("watershed.dev/cluster in ("+strings.Join(names, ",")+")")
	expect.Soon(t, "all changes of some clusters, in order", func() bool {
		list := w.changesOf(strings.TrimPrefix(changes, "?") + selector)
		for i, c := range list.Items {
			if i > 0 && c.Time.Before(list.Items[i-1].Time) {
				t.Fatalf("%v is after %v", c.Time, list.Items[i-1].Time)
			}
		}
		return len(list.Items) == changesOfEach*len(names)
	})
}
