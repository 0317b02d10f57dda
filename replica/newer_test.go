// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/wire"
)

// newerPod returns a pod with a field that this program's k8s.io/api does not have.
func newerPod(protobuf bool, name string, version int) []byte {
	raw := scriptedPod(protobuf, name, version, false)
	if protobuf {
		return append(raw, "\x12\x08\xd2\x3e\x05newer"...) // field 1002 of the spec
	}
	return []byte(strings.Replace(string(raw), `"containers":null`, `"containers":null,"field":"newer"`, 1))
}

// A cluster that is newer than this program has fields that are lost when protobuf is
// converted. Then the resource is mirrored as JSON, whether the first state has such an
// object or a later one. A first state without the fields is never served.
func TestNewerCluster_losesNoFields(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	for _, later := range []bool{false, true} {
		s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		inProtobuf := &script{
			protobuf: true, initial: [][]byte{scriptedPod(true, "web-0", 10, false)}, later: make(chan []byte),
		}
		inJSON := &script{initial: [][]byte{scriptedPod(false, "web-0", 10, false), newerPod(false, "web-1", 20)}}
		if !later {
			inProtobuf.initial = append(inProtobuf.initial, newerPod(true, "web-1", 20))
		}
		var converted atomic.Bool
		o := newOrigin(t, s.Cluster(0))
		o.answers(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.Header.Get("Accept"), protobufType) {
				return inProtobuf.answer(w, r)
			}
			converted.Store(converted.Load() || r.URL.Path == "/api/v1/pods")
			return inJSON.answer(w, r)
		})
		w, f, _ := serve(t, s, []fleet.Entry{{Name: s.Cluster(0).Name(), Config: o.config}}, nil)
		w.until(http.StatusOK, w.pods(0))
		if later {
			if converted.Load() {
				t.Fatal("pods without unknown fields are read as JSON")
			}
			inProtobuf.later <- newerPod(true, "web-1", 20)
			expect.Soon(t, "the pods are read as JSON", converted.Load)
			expect.Soon(t, "the field is served", func() bool {
				body, _, err := w.whole(w.pods(0))
				return err == nil && strings.Contains(string(body), `"field":"newer"`)
			})
		}
		for _, accept := range []string{"application/json", protobufType + ",application/json"} {
			if body, _ := w.read(w.pods(0), "Accept", accept); strings.Count(string(body), `"field":"newer"`) != 1 ||
				strings.Count(string(body), `"web-`) != 2 {
				t.Errorf("later %v, Accept %s: %s", later, accept, body)
			}
		}
		m, _ := f.Member(s.Cluster(0).Name())
		if got := m.Status(); len(got.JSON) != 1 || got.JSON[0] != (schema.GroupResource{Resource: "pods"}) ||
			got.State != fleet.Live {
			t.Errorf("later %v: the status is %+v", later, got)
		}
		if page, _ := w.read("/clusters"); !strings.Contains(string(page), `"json":["pods"]`) {
			t.Errorf("later %v: /clusters has %s", later, page)
		}
	}
}

// TestNewerCluster_afterARestart restarts a replica that has changed to JSON. The files have
// both states of the pods, and the API server does not answer: the state in JSON is served, which
// is newer and has all fields.
func TestNewerCluster_afterARestart(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 1})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	path := t.TempDir()
	inProtobuf := &script{
		protobuf: true, initial: [][]byte{scriptedPod(true, "web-0", 10, false)}, later: make(chan []byte),
	}
	inJSON := &script{initial: [][]byte{
		scriptedPod(false, "web-0", 10, false), newerPod(false, "web-1", 20), scriptedPod(false, "web-2", 90, false),
	}}
	var silent atomic.Bool
	o := newOrigin(t, s.Cluster(0))
	o.answers(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case silent.Load() && strings.HasSuffix(r.URL.Path, "/pods"):
			<-r.Context().Done()
			return true
		case strings.Contains(r.Header.Get("Accept"), protobufType):
			return inProtobuf.answer(w, r)
		}
		return inJSON.answer(w, r)
	})
	entries := []fleet.Entry{{Name: s.Cluster(0).Name(), Config: o.config}}
	served := func(w *simulatedReplica) string {
		body, _, err := w.whole(w.pods(0))
		if err != nil {
			return err.Error()
		}
		return string(body)
	}
	t.Run("before", func(t *testing.T) {
		w, _, _ := serveStored(t, s, entries, openFiles(t, path), nil)
		expect.Soon(t, "the pod is stored", func() bool { return storedPods(path, wire.Protobuf) == 1 })
		inProtobuf.later <- newerPod(true, "web-1", 20)
		expect.Soon(t, "the field is served", func() bool { return strings.Contains(served(w), `"field":"newer"`) })
		expect.Soon(t, "the pods are stored as JSON", func() bool { return storedPods(path, wire.JSON) == 3 })
	})
	silent.Store(true)
	t.Run("after", func(t *testing.T) {
		w, f, _ := serveStored(t, s, entries, openFiles(t, path), nil)
		w.until(http.StatusOK, w.pods(0))
		if body := served(w); strings.Count(body, `"field":"newer"`) != 1 || strings.Count(body, `"name":"web-`) != 3 {
			t.Errorf("a state without all fields and objects is served: %s", body)
		}
		m, _ := f.Member(s.Cluster(0).Name())
		if got := m.Status().JSON; len(got) != 1 || got[0] != (schema.GroupResource{Resource: "pods"}) {
			t.Errorf("%v are read as JSON", got)
		}
	})
}

// openFiles opens a directory of files, and writes to it until the test ends.
func openFiles(t *testing.T, path string) *disk.Directory {
	t.Helper()
	d, err := disk.Open(path, nil)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-done)
		expect.NoError(t, d.Close())
	})
	return d
}

// storedPods returns how many pods the files have in an encoding.
func storedPods(path string, in wire.Encoding) int {
	report, err := storage.Verify(path, nil)
	if err != nil {
		return 0 // the files change meanwhile
	}
	for _, c := range report.Clusters {
		for _, m := range c.Mirrors {
			if m.Identity.Resource == "pods" && m.Identity.Encoding == in.String() && m.Err == nil {
				return m.Objects
			}
		}
	}
	return 0
}
