// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

const keyed = "?watch=true&watershedFleet=keyed-by-cluster&allowWatchBookmarks=true"

// TestTerm_ofTheReplica has a replica without a slot, with one, with another one, and at the bound
// of its versions. GET of an object does not depend on that: it has the cluster's version.
func TestTerm_ofTheReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var term atomic.Pointer[fleet.Term]
	now := func() uint64 { return uint64(time.Now().UnixMicro()) }
	begin := func(slot int, bound uint64) {
		next := fleet.NewTerm(slot, 0, now)
		next.Extend(bound)
		term.Store(next)
	}
	begin(0, 0)
	term.Load().End()
	entries := []fleet.Entry{{Name: s.Cluster(0).Name(), Config: s.Cluster(0).Config()}}
	w, f, _ := serveFleet(t, s, entries, &fleet.Options{Resources: []string{"pods"}, Term: term.Load},
		&replica.Options{FleetWarning: func() string { return "no peer can be reached" }})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	const pods = "/fleet/api/v1/pods"
	get := func(path string) (int, string, http.Header) {
		t.Helper()
		resp, err := w.get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Header
	}
	refused := func(what, cause string) {
		t.Helper()
		for _, path := range []string{pods, pods + "?limit=2", pods + keyed} {
			code, body, header := get(path)
			if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" ||
				!strings.Contains(body, cause) {
				t.Errorf("%s: %s is %d, Retry-After %q: %s", what, path, code, header.Get("Retry-After"), body)
			}
		}
	}
	list := func() uint64 {
		t.Helper()
		code, body, header := get(pods)
		var l corev1.PodList
		if err := json.Unmarshal([]byte(body), &l); err != nil || code != http.StatusOK || len(l.Items) != 3 {
			t.Fatalf("list is %d, %v: %s", code, err, body)
		}
		if !strings.Contains(header.Get("Warning"), "no peer can be reached") {
			t.Errorf("the Warning is %q", header.Get("Warning"))
		}
		version, _ := strconv.ParseUint(l.ResourceVersion, 10, 64)
		return version
	}
	refused("without a slot", "no slot")
	hour := uint64(time.Hour / time.Microsecond)
	begin(7, now()+hour)
	first := list()
	if first&1023 != 7 {
		t.Errorf("version %d has slot %d", first, first&1023)
	}
	watch, err := w.get(t.Context(), pods+keyed+"&resourceVersion="+uitoa(first))
	if err != nil || watch.StatusCode != http.StatusOK {
		t.Fatal(err, watch)
	}
	defer watch.Body.Close()
	term.Load().End()
	last := ""
	for lines := bufio.NewScanner(watch.Body); lines.Scan(); {
		last = lines.Text()
	}
	if !strings.Contains(last, `"code":410`) {
		t.Errorf("the watch ends with %q", last)
	}
	refused("after its slot is lost", "no slot")

	begin(9, now()+hour)
	if second := list(); second <= first || second&1023 != 9 {
		t.Errorf("after version %d comes %d", first, second)
	}
	for _, path := range []string{
		pods + "?resourceVersion=" + uitoa(first), pods + "?resourceVersion=" + uitoa(first) +
			"&resourceVersionMatch=Exact",
		pods + keyed + "&resourceVersion=" + uitoa(first),
	} {
		if _, body, _ := get(path); !strings.Contains(body, `"code":410`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	before := list()
	for _, path := range []string{"?resourceVersion=", keyed + "&resourceVersion="} {
		if _, body, _ := get(pods + path + uitoa(1<<62)); !strings.Contains(body, `"code":410`) {
			t.Errorf("version 2^62 gets %s", body)
		}
	}
	if after := list(); after != before {
		t.Errorf("version 2^62 raises %d to %d", before, after)
	}
	begin(11, 1)
	refused("at the bound", "bound")
	name := s.Cluster(0).Name()
	code, body, _ := get("/clusters/" + name + "/api/v1/pods?limit=1")
	var l corev1.PodList
	if err := json.Unmarshal([]byte(body), &l); err != nil || code != http.StatusOK || len(l.Items) != 1 {
		t.Fatalf("list below /clusters is %d, %v", code, err)
	}
	one := l.Items[0]
	if code, body, _ := get("/fleet/api/v1/namespaces/" + one.Namespace + "/pods/" + one.Name); code != http.StatusOK {
		t.Errorf("get of a pod without a version: %d: %s", code, body)
	}
}
