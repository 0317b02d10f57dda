// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// simulate returns simulated clusters for the duration of the test.
func simulate(t *testing.T, opts *simulated.Options) *simulated.Server {
	t.Helper()
	s, err := simulated.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var podResource = schema.GroupResource{Resource: "pods"}

// TestSync_badClustersDelayNoOthers starts a fleet in which some clusters do not respond,
// refuse requests, or accept connections and send nothing.
func TestSync_badClustersDelayNoOthers(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 9, Pods: 500})
	r := newRoster()
	for i := range 8 {
		r.set(fmt.Sprintf("good-%d", i), s.Cluster(i).Config())
	}
	refusing := s.Cluster(8).Config()
	refusing.BearerToken = "wrong"
	unused := &rest.Config{Host: "https://127.0.0.1:1"}
	for i := range 6 {
		r.set(fmt.Sprintf("bad-%d-silent", i), silence(t))
	}
	r.set("bad-refusing", refusing)
	r.set("bad-unused", unused)
	f := start(t, r, &fleet.Options{
		Resources: []string{"pods"},
		Logger:    quiet,
		Lists:     2,
		Budget:    fleet.Budget{Lists: 1},
	})
	pods, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	expect.Eventually(t, 20*time.Second, func() error {
		if n := pods.Len(); n < 8*500 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	t.Logf("8 clusters synced in %v beside 8 bad ones", time.Since(began).Round(time.Millisecond))
	for _, m := range f.Members() {
		want := fleet.Live
		if m.Name() < "good" {
			want = fleet.Connecting
		}
		expect.Eventually(t, 5*time.Second, func() error {
			if s := m.Status(); s.State != want {
				return fmt.Errorf("%s is %s: %w", m.Name(), s.State, s.Err)
			}
			return nil
		})
	}
	m, _ := f.Member("bad-unused")
	if err := m.WaitForSync(t.Context()); !errors.Is(err, fleet.ErrUnreachable) {
		t.Errorf("waiting for an address without a server ends with %v", err)
	}
}

// TestSync_progressAndPace checks the status of a member during its first sync, and the
// rate of its lists.
func TestSync_progressAndPace(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 4000})
	r := newRoster()
	r.set("one", s.Cluster(0).Config())
	// 4,000 pods of some 5 KB at 4 MB/s.
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Budget: fleet.Budget{BytesPerSecond: 4 << 20}})
	began := time.Now()
	var m *fleet.Member
	expect.Eventually(t, 5*time.Second, func() error {
		var ok bool
		if m, ok = f.Member("one"); !ok {
			return errors.New("not a member")
		}
		if s := m.Status(); s.State != fleet.Syncing || s.Expected < 4000 || s.Objects == 0 || s.Objects >= 4000 ||
			s.Resources != 3 {
			return fmt.Errorf("not under way: %+v", s)
		}
		return nil
	})
	t.Logf("under way: %+v", m.Status())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	var bytes int
	for _, o := range fleet.OfResource[*wire.Object](f, podResource).All() {
		bytes += len(o.Bytes())
	}
	rate := float64(bytes) / took.Seconds() / (1 << 20)
	t.Logf("%d bytes in %v: %.1f MiB/s", bytes, took.Round(time.Millisecond), rate)
	if rate > 5 {
		t.Errorf("read at %.1f MiB/s where 4 are allowed", rate)
	}
	if s := m.Status(); s.State != fleet.Live || s.Objects != s.Expected {
		t.Errorf("in the end %+v", s)
	}
}

// TestStale_lastStateStaysReadable stops a cluster of a running fleet.
func TestStale_lastStateStaysReadable(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 100})
	r := newRoster()
	r.set("a", s.Cluster(0).Config())
	r.set("b", s.Cluster(1).Config())
	// The wait after a failure does not end by itself: corrected credentials end it.
	f := start(t, r, &fleet.Options{
		Resources: []string{"pods"},
		Logger:    quiet,
		Reflector: reflector.Options{Backoff: 24 * time.Hour, MaxBackoff: 24 * time.Hour},
	})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := fleet.OfResource[*wire.Object](f, podResource)
	// The directory has new credentials, which the cluster refuses.
	wrong := s.Cluster(0).Config()
	wrong.BearerToken = "wrong"
	r.set("a", wrong)
	m, _ := f.Member("a")
	before := time.Now()
	expect.Eventually(t, 10*time.Second, func() error {
		if s := m.Status(); s.State != fleet.Stale {
			return fmt.Errorf("%s: %w", s.State, s.Err)
		}
		return nil
	})
	status := m.Status()
	if status.Err == nil || status.Since.Before(before.Add(-10*time.Second)) || status.Since.After(time.Now()) ||
		len(status.Failing) == 0 {
		t.Errorf("status %+v", status)
	}
	if n := v.In("a").Len(); n != 100 {
		t.Errorf("%d objects of a cluster that cannot be reached", n)
	}
	if b, _ := f.Member("b"); b.Status().State != fleet.Live {
		t.Errorf("the other one: %+v", b.Status())
	}
	s.Cluster(0).Touch(7)
	r.set("a", s.Cluster(0).Config())
	expect.Eventually(t, 20*time.Second, func() error {
		if s := m.Status(); s.State != fleet.Live {
			return fmt.Errorf("%s: %w", s.State, s.Err)
		}
		pod := s.Cluster(0).Pod(7)
		o, ok := v.Get(fleet.Key{Cluster: "a", Object: pod.Namespace + "/" + pod.Name})
		if !ok || fmt.Sprint(o.Version()) != pod.ResourceVersion {
			return fmt.Errorf("pod 7 is %v, not at %s", o, pod.ResourceVersion)
		}
		return nil
	})
}

// TestMember_anotherServerTakesTheName has a name lead to another cluster: the old
// objects stay readable until the new ones can be read.
func TestMember_anotherServerTakesTheName(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 300})
	r := newRoster()
	r.set("one", s.Cluster(0).Config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods", "namespaces"}, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := fleet.OfResource[*wire.Object](f, podResource)
	w := watchView(t, "pods", v)
	expect.Eventually(t, 5*time.Second, func() error { return w.behind(v) })
	uid := func(i int) string { return string(s.Cluster(i).Pod(0).UID) }
	pod := s.Cluster(0).Pod(0)
	key := fleet.Key{Cluster: "one", Object: pod.Namespace + "/" + pod.Name}
	typed, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		t.Fatal(err)
	}
	r.set("one", s.Cluster(1).Config())
	expect.Eventually(t, 20*time.Second, func() error {
		p, ok := typed.Get(key)
		if !ok {
			t.Fatal("the pod was away")
		}
		if string(p.UID) != uid(1) {
			return errors.New("still the other cluster's")
		}
		return w.behind(v)
	})
	if n := v.Len(); n != 300 {
		t.Errorf("%d pods", n)
	}
	s.Cluster(1).Touch(0)
	expect.Eventually(t, 5*time.Second, func() error {
		if p, _ := typed.Get(key); p.ResourceVersion != s.Cluster(1).Pod(0).ResourceVersion {
			return errors.New("not followed")
		}
		return w.behind(v)
	})
	expect.Eventually(t, 5*time.Second, func() error {
		if n := s.Cluster(0).Stats().OpenWatches; n != 0 {
			return fmt.Errorf("%d watches of the cluster before", n)
		}
		return nil
	})
}

// The connection of a snapshot is that of its objects. It is not that of a server that has
// taken the name of their cluster and has sent nothing yet.
func TestSnapshot_connections(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 30})
	r := newRoster()
	r.set("one", s.Cluster(0).Config())
	r.set("two", s.Cluster(1).Config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := fleet.OfResource[*wire.Object](f, podResource)
	states := func(s fleet.Snapshot[*wire.Object]) map[string]string {
		all := map[string]string{}
		for cluster, c := range s.Connections() {
			all[cluster] = c.State.String()
		}
		return all
	}
	want := func(one string) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error {
			if got := states(v.Snapshot()); !maps.Equal(got, map[string]string{"one": one, "two": "watching"}) {
				return fmt.Errorf("the connections are %v", got)
			}
			return nil
		})
	}
	want("watching")
	expect.Equal(t, states(v.In("two").Snapshot()), map[string]string{"two": "watching"})
	r.set("one", silence(t))
	want("idle")
	if n := v.In("one").Len(); n != 30 {
		t.Errorf("%d pods of one, want the former ones", n)
	}
}

// silence returns the configuration of a server that accepts connections and sends
// nothing.
func silence(t *testing.T) *rest.Config {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // clients close their connections
	return &rest.Config{Host: "https://" + l.Addr().String(), Timeout: 3 * time.Second}
}

// TestRun_isEmptyInTheEnd ends a fleet while a reader watches it.
func TestRun_isEmptyInTheEnd(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 50})
	r := newRoster()
	for i := range 2 {
		r.set(s.Cluster(i).Name(), s.Cluster(i).Config())
	}
	f, err := fleet.New(r, &fleet.Options{Resources: []string{"pods"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	v := fleet.OfResource[*wire.Object](f, podResource)
	seen := make(chan int, 1)
	go func() {
		n := 0
		for c := range v.Watch(t.Context()) {
			n++
			if c.Type == delta.Deleted {
				t.Errorf("a reader received %s as deleted", c.Key)
			}
		}
		seen <- n
	}()
	expect.Eventually(t, 5*time.Second, func() error {
		if n := v.Len(); n != 100 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	if err := f.Run(ctx); !errors.Is(err, watershed.ErrRunning) {
		t.Errorf("a second run: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := <-seen; n != 100 {
		t.Errorf("the reader saw %d changes", n)
	}
	if n, m := v.Len(), len(f.Members()); n != 0 || m != 0 {
		t.Errorf("%d pods and %d members are left", n, m)
	}
}
