// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
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
		inProtobuf := &script{protobuf: true, initial: [][]byte{scriptedPod(true, "web-0", 10, false)}, later: make(chan []byte)}
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
			waitFor(t, converted.Load)
			waitFor(t, func() bool {
				body, _, err := w.whole(w.pods(0))
				return err == nil && strings.Contains(string(body), `"field":"newer"`)
			})
		}
		for _, accept := range []string{"application/json", protobufType + ",application/json"} {
			if body, _ := w.read(w.pods(0), "Accept", accept); strings.Count(string(body), `"field":"newer"`) != 1 || strings.Count(string(body), `"web-`) != 2 {
				t.Errorf("later %v, Accept %s: %s", later, accept, body)
			}
		}
		m, _ := f.Member(s.Cluster(0).Name())
		if got := m.Status(); len(got.JSON) != 1 || got.JSON[0] != (schema.GroupResource{Resource: "pods"}) || got.State != fleet.Live {
			t.Errorf("later %v: the status is %+v", later, got)
		}
		if page, _ := w.read("/clusters"); !strings.Contains(string(page), `"json":["pods"]`) {
			t.Errorf("later %v: /clusters has %s", later, page)
		}
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}
